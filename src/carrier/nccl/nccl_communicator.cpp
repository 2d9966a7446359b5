#include "carrier/nccl/communicator.h"

namespace deltawire::nccl {
namespace {

constexpr double kFarewellSeconds = 5;  // for others to end the group too

}  // namespace

Result<Communicator> Communicator::create(const Library& library, const ncclUniqueId& id,
                                          unsigned rank, unsigned size, Polling* polling) {
  ncclConfig_t config = NCCL_CONFIG_INITIALIZER;
  config.blocking = 0;
  ncclComm_t handle = nullptr;
  const ncclResult_t begun = library.init_rank(&handle, int(size), id, int(rank), &config);
  if (handle == nullptr) return failure(library, begun, "ncclCommInitRankConfig");
  Communicator communicator(library, handle);
  Status status = communicator.settle(begun, "ncclCommInitRankConfig", polling);
  if (status.ok()) return communicator;
  communicator.abort();
  if (polling->late()) {
    return unavailable("not all of the " + std::to_string(size) + " ranks have come " +
                       after_seconds(polling->timeout_seconds()));
  }
  return status;
}

Communicator::~Communicator() {
  if (handle_ == nullptr) return;
  const std::atomic<bool> aborted{false};
  Polling polling(kFarewellSeconds, aborted);
  if (settle(library_->finalize(handle_), "ncclCommFinalize", &polling).ok()) {
    (void)library_->destroy(handle_);
  } else {
    abort();
  }
}

Status Communicator::settle(ncclResult_t returned, const char* doing, Polling* polling) {
  while (returned == ncclInProgress) {
    if (polling->aborted()) return cancelled("the group was aborted");
    if (polling->late())
      return unavailable("not done " + after_seconds(polling->timeout_seconds()));
    polling->rest();
    if (const ncclResult_t asked = library_->async_error(handle_, &returned);
        asked != ncclSuccess) {
      return failure(*library_, asked, doing);
    }
  }
  if (returned == ncclSuccess) return {};
  return failure(*library_, returned, doing);
}

Status Communicator::check(const char* doing) {
  ncclResult_t state = ncclSuccess;
  if (const ncclResult_t asked = library_->async_error(handle_, &state); asked != ncclSuccess) {
    return failure(*library_, asked, doing);
  }
  if (state == ncclSuccess || state == ncclInProgress) return {};
  return failure(*library_, state, doing);
}

void Communicator::abort() noexcept {
  if (handle_ != nullptr) (void)library_->abort(std::exchange(handle_, nullptr));
}

}  // namespace deltawire::nccl
