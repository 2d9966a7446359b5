#include "gil.h"

#include <pthread.h>
#include <unistd.h>
#include <atomic>
#include <chrono>
#include <thread>

#include "watcher.h"

namespace deltawire::python {
namespace {

// Unfinished calls of Python code. Negative in a forked child process that finishes a call of its
// parent.
std::atomic<int> calls{0};
std::atomic<bool> ending{false};
// Number of GilTaken objects of this thread.
thread_local int depth = 0;
// The thread that finalizes the interpreter: it may call Python until the end.
std::atomic<std::thread::id> last_thread;

// How long a call of Python code, such as a store's method, may delay the end of the interpreter.
constexpr auto kPatience = std::chrono::seconds(5);

bool may_call_python() {
  return Py_IsInitialized() && (!ending || last_thread.load() == std::this_thread::get_id());
}

// Registered with atexit: non-daemon threads have ended, daemon threads still run.
void end() {
  last_thread = std::this_thread::get_id();
  ending = true;
  // Objects held by threads that never return are not leaks.
  const nb::object threads = nb::module_::import_("threading").attr("active_count")();
  if (nb::cast<int>(threads) > 1) nb::set_leak_warnings(false);
  const GilReleased released;
  const auto deadline = std::chrono::steady_clock::now() + kPatience;
  while (calls > 0 && std::chrono::steady_clock::now() < deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
}

// Between calls of a progress callback: short for a person, negligible in cost.
constexpr auto kInterval = std::chrono::milliseconds(50);

}  // namespace

void sleep_for_ever() noexcept {
  for (;;) pause();
}

GilReleased::~GilReleased() {
  try {
    PyEval_RestoreThread(state_);
  } catch (...) {  // forced unwinding: it must not be swallowed, so it does not continue either
    sleep_for_ever();
  }
}

GilTaken::GilTaken() {
  ++calls;  // before the check: end() waits for admitted calls
  if (!may_call_python()) {
    --calls;
    return;
  }
  try {
    state_ = PyGILState_Ensure();
    taken_ = true;
    ++depth;
  } catch (...) {
    sleep_for_ever();
  }
}

GilTaken::~GilTaken() {
  if (!taken_) return;
  --depth;
  PyGILState_Release(state_);
  --calls;
}

bool is_inside_a_callback() noexcept { return depth > 0; }

void watch_for_the_end(nb::module_& module) {
  module.def("_end", &end);
  module.def("is_ending", [] { return ending.load(); });
  nb::module_::import_("atexit").attr("register")(module.attr("_end"));
  pthread_atfork(nullptr, nullptr, [] { calls = 0; });
}

bool Watcher::ask(uint64_t done, uint64_t total) {
  const auto now = std::chrono::steady_clock::now();
  const bool just_done = done == total && last_done_ != done;
  if (now - last_ < kInterval && !just_done) return true;
  last_ = now;
  last_done_ = done;
  return with_gil(false, [&] {
    if (raised_) return false;
    try {
      if (PyErr_CheckSignals() != 0) throw nb::python_error();
      return callback_.is_none() || !callback_(done, total).is(nb::bool_(false));
    } catch (nb::python_error& error) {
      raised_.emplace(std::move(error));
      return false;
    }
  });
}

void Watcher::rethrow() {
  if (!raised_) return;
  nb::python_error error = std::move(*raised_);
  raised_.reset();
  throw error;
}

}  // namespace deltawire::python
