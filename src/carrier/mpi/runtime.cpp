#include "carrier/mpi/runtime.h"

#include <atomic>
#include <cstdlib>
#include <mutex>

#include "carrier/polling.h"

namespace deltawire::mpi {
namespace {

std::atomic<bool> is_left_unfinished{false};

constexpr double kFarewellSeconds = 10;

// MPI_Finalize waits for all processes, for ever: it is called when all have said that they come.
void finish() {
  if (is_left_unfinished.load() || has_ended()) return;
  MPI_Request request = MPI_REQUEST_NULL;
  if (MPI_Ibarrier(MPI_COMM_WORLD, &request) != MPI_SUCCESS) return;
  const std::atomic<bool> never{false};
  Polling polling(kFarewellSeconds, never);
  int is_done = 0;
  while (MPI_Test(&request, &is_done, MPI_STATUS_IGNORE) == MPI_SUCCESS && !is_done) {
    if (polling.late()) return;
    polling.rest();
  }
  MPI_Finalize();
}

}  // namespace

Status begin() {
  static std::mutex mutex;
  const std::lock_guard lock(mutex);
  if (has_ended()) return unavailable("MPI has ended in this process, and cannot begin again");
  int is_begun = 0;
  MPI_Initialized(&is_begun);
  if (is_begun) return {};
  int provided = 0;
  if (const int error = MPI_Init_thread(nullptr, nullptr, MPI_THREAD_MULTIPLE, &provided);
      error != MPI_SUCCESS) {
    return failure(error, "MPI_Init_thread");
  }
  std::atexit(finish);
  return {};
}

void leave_unfinished() noexcept { is_left_unfinished.store(true); }

Status check_thread() {
  int provided = 0, is_main = 0;
  MPI_Query_thread(&provided);
  if (provided >= MPI_THREAD_SERIALIZED) return {};
  MPI_Is_thread_main(&is_main);
  if (is_main) return {};
  return invalid_argument(
      "MPI was begun for its main thread alone; begin it with MPI_Init_thread and "
      "MPI_THREAD_SERIALIZED or MPI_THREAD_MULTIPLE");
}

bool has_ended() noexcept {
  int ended = 0;
  MPI_Finalized(&ended);
  return ended != 0;
}

Status failure(int error, const std::string& doing) {
  char text[MPI_MAX_ERROR_STRING] = "unknown error";
  int length = 0;
  MPI_Error_string(error, text, &length);
  return unavailable(doing + ": " + text);
}

}  // namespace deltawire::mpi
