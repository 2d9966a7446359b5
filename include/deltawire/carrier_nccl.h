// GPUs as a group, over NCCL: one rank for each GPU. docs/carriers.md says more.
//
// The library libnccl.so.2 is loaded when it is first needed: the copy that is already in the
// process, of torch, say, or the one that the system finds. A build without NCCL has these
// functions too; they say Unsupported.
#pragma once

#include <memory>
#include <string>

#include "deltawire/carrier.h"

namespace deltawire {

// A new group's name, made by one rank and told to the others (Hub): 128 bytes, not printable. The
// process that made it must live until the group is there. Unsupported without libnccl.so.2.
Result<std::string> nccl_unique_id();

struct NcclOptions {
  std::string id;  // of nccl_unique_id()
  unsigned rank = 0;
  unsigned size = 1;
  int device = -1;              // the GPU's number in this process; -1: the one in use
  double timeout_seconds = 60;  // for all ranks to come
  // Bytes in host memory cross to the GPU and back through two buckets of this size, pinned and on
  // the device. The same for all ranks: it says where messages are cut.
  uint64_t bucket_bytes = uint64_t{64} << 20;
};

// All ranks call it at the same time. Spans of its calls may be in host memory or on its GPU; what
// writes to those on the GPU must be over before. NCCL does not tell which rank is late, unless a
// call had but one; after a failure the group is aborted.
Result<std::unique_ptr<Carrier>> make_nccl_carrier(const NcclOptions& options);

}  // namespace deltawire
