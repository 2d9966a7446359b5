#include "carrier/nccl/library.h"

#include <dlfcn.h>

namespace deltawire::nccl {
namespace {

constexpr int kOldest = 21800;  // 2.18.0

template <class Function>
bool find_function(void* handle, const char* name, Function* function) {
  *function = reinterpret_cast<Function>(::dlsym(handle, name));
  return *function != nullptr;
}

Result<Library> load() {
  // By this name the loader also finds a copy that somebody has loaded from elsewhere.
  void* const handle = ::dlopen("libnccl.so.2", RTLD_NOW | RTLD_LOCAL);
  if (handle == nullptr) {
    const char* const why = ::dlerror();
    return unsupported(std::string("NCCL cannot be loaded: ") + (why ? why : "libnccl.so.2"));
  }
  Library all;
  const bool is_whole = find_function(handle, "ncclGetVersion", &all.get_version) &&
                        find_function(handle, "ncclGetUniqueId", &all.get_unique_id) &&
                        find_function(handle, "ncclCommInitRankConfig", &all.init_rank) &&
                        find_function(handle, "ncclCommGetAsyncError", &all.async_error) &&
                        find_function(handle, "ncclCommFinalize", &all.finalize) &&
                        find_function(handle, "ncclCommDestroy", &all.destroy) &&
                        find_function(handle, "ncclCommAbort", &all.abort) &&
                        find_function(handle, "ncclGroupStart", &all.group_start) &&
                        find_function(handle, "ncclGroupEnd", &all.group_end) &&
                        find_function(handle, "ncclSend", &all.send) &&
                        find_function(handle, "ncclRecv", &all.receive) &&
                        find_function(handle, "ncclBroadcast", &all.broadcast) &&
                        find_function(handle, "ncclGetErrorString", &all.error_string) &&
                        find_function(handle, "ncclGetLastError", &all.last_error);
  int version = 0;
  if (!is_whole || all.get_version(&version) != ncclSuccess || version < kOldest) {
    return unsupported("NCCL " + std::to_string(version) + " is too old: 2.18 or newer is needed");
  }
  return all;  // stays loaded: threads of NCCL run in it
}

}  // namespace

Result<const Library*> library() {
  static const auto* const loaded = new Result<Library>(load());
  if (!loaded->ok()) return loaded->status();
  return &loaded->value();
}

Status failure(const Library& library, ncclResult_t error, const std::string& doing) {
  std::string text = doing + ": " + library.error_string(error);
  const char* const last = library.last_error(nullptr);
  if (last != nullptr && *last != '\0') text += std::string(": ") + last;
  while (!text.empty() && text.back() == '\n') text.pop_back();
  // A rank that went, and sockets that broke, may be there the next time.
  const bool may_pass = error == ncclRemoteError || error == ncclSystemError;
  return Status(may_pass ? Code::kUnavailable : Code::kDevice, std::move(text));
}

}  // namespace deltawire::nccl
