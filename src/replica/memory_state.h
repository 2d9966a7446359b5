// A version of a chain, fetched into memory.
#pragma once

#include <map>
#include <memory>
#include <set>
#include <string>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "chain/chain.h"
#include "deltawire/progress.h"
#include "format/delta_part.h"

namespace deltawire {

struct MemoryTensor {
  DType dtype = DType::kU8;
  Shape shape;
  MutableBytes bytes;
  std::shared_ptr<void> owner;  // several tensors may share one
};

using MemoryState = std::map<std::string, MemoryTensor, std::less<>>;

// An object whole, checked against its sha-256.
struct FetchedObject {
  std::shared_ptr<uint8_t[]> owner;
  MutableBytes bytes;
};
Result<FetchedObject> fetch_object(Store& store, const PartRef& part, const Allocate& allocate);

// One file of a version that is stored whole, unpacked if it is packed.
Result<FetchedObject> fetch_checkpoint_file(Store& store, const PartRef& part,
                                            const Allocate& allocate, ThreadPool* pool);

// The tensors of such a file, which they stay in.
Status add_checkpoint_file(const FetchedObject& file, MemoryState* state);
// One entry of a delta. Nothing is proven.
Status apply_entry(const DeltaEntry& entry, Bytes payload, const Allocate& allocate,
                   MemoryState* state, ThreadPool* pool);
// Corruption, naming the tensor, unless the state holds what the manifest says: all of the schema's
// tensors and no others, in their form; their bytes have the digests of the manifest. `only`, if it
// is not null: of these tensors alone.
Status check_state(const Manifest& manifest, const Schema& schema, const MemoryState& state,
                   const std::set<std::string, std::less<>>* only, ThreadPool* pool);

// By the cheapest path from nothing, and around parts that are damaged or gone, as a replica goes
// (plan_pull.h). Every object is checked against its sha-256, every tensor against its digest.
// Holds the model, and one part at a time.
Result<MemoryState> fetch_state(const Chain& chain, uint64_t version, ThreadPool* pool,
                                const Progress& progress,
                                const Allocate& allocate = allocate_bytes);

}  // namespace deltawire
