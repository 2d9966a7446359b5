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

// A complete object, checked against its sha-256.
struct FetchedObject {
  std::shared_ptr<uint8_t[]> owner;
  MutableBytes bytes;
};
Result<FetchedObject> fetch_object(Store& store, const PartRef& part, const Allocate& allocate);

// A file of a whole version, unpacked if it is packed.
Result<FetchedObject> fetch_checkpoint_file(Store& store, const PartRef& part,
                                            const Allocate& allocate, ThreadPool* pool);

// Adds the tensors of such a file; they share its memory.
Status add_checkpoint_file(const FetchedObject& file, MemoryState* state);
// Applies one entry of a delta. Does not check digests.
Status apply_entry(const DeltaEntry& entry, Bytes payload, const Allocate& allocate,
                   MemoryState* state, ThreadPool* pool);
// Corruption, naming the tensor, unless the state has exactly the tensors of the schema and their
// bytes match the manifest's digests. `only`: if not null, checks only these tensors.
Status check_state(const Manifest& manifest, const Schema& schema, const MemoryState& state,
                   const std::set<std::string, std::less<>>* only, ThreadPool* pool);

// Fetches the version by the cheapest path from nothing, avoiding damaged and missing parts as a
// replica does (plan_pull.h). Every object is checked against its sha-256 and every tensor against
// its digest. Holds the model and one part at a time.
Result<MemoryState> fetch_state(const Chain& chain, uint64_t version, ThreadPool* pool,
                                const Progress& progress,
                                const Allocate& allocate = allocate_bytes);

}  // namespace deltawire
