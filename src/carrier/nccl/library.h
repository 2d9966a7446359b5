// NCCL's functions, of the library that is loaded when they are first needed. Processes that never
// make a group over NCCL need none; those with torch use torch's.
#pragma once

#include <nccl.h>

#include <string>

#include "deltawire/status.h"

namespace deltawire::nccl {

struct Library {
  decltype(&ncclGetVersion) get_version = nullptr;
  decltype(&ncclGetUniqueId) get_unique_id = nullptr;
  decltype(&ncclCommInitRankConfig) init_rank = nullptr;
  decltype(&ncclCommGetAsyncError) async_error = nullptr;
  decltype(&ncclCommFinalize) finalize = nullptr;
  decltype(&ncclCommDestroy) destroy = nullptr;
  decltype(&ncclCommAbort) abort = nullptr;
  decltype(&ncclGroupStart) group_start = nullptr;
  decltype(&ncclGroupEnd) group_end = nullptr;
  decltype(&ncclSend) send = nullptr;
  decltype(&ncclRecv) receive = nullptr;
  decltype(&ncclBroadcast) broadcast = nullptr;
  decltype(&ncclGetErrorString) error_string = nullptr;
  decltype(&ncclGetLastError) last_error = nullptr;
};

// Unsupported: there is none, or it is older than 2.18, whose groups wait where ours ask.
Result<const Library*> library();

// What NCCL says of an error, with its last words.
Status failure(const Library& library, ncclResult_t error, const std::string& doing);

}  // namespace deltawire::nccl
