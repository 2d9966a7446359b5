// A version of a chain, fetched into memory.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/bytes.h"
#include "base/thread_pool.h"
#include "chain/chain.h"
#include "deltawire/delta.h"

namespace deltawire {

struct MemoryTensor {
  DType dtype = DType::kU8;
  Shape shape;
  MutableBytes bytes;
  std::shared_ptr<void> owner;  // several tensors may share one
};

using MemoryState = std::map<std::string, MemoryTensor, std::less<>>;

// Uninitialised bytes; OutOfMemory instead of an exception.
Result<std::shared_ptr<uint8_t[]>> allocate_bytes(uint64_t size_bytes);

// By the cheapest path from nothing. Every object is checked against its sha-256, every tensor
// against its digest. Holds the model, and one part at a time.
Result<MemoryState> fetch_state(const Chain& chain, uint64_t version, ThreadPool* pool,
                                const Progress& progress);

}  // namespace deltawire
