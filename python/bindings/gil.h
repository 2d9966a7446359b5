// The GIL, in a process whose interpreter may be ending: how to let go of it, and how to take it.
//
// CPython ends each thread but the last that asks for the GIL when the interpreter ends.
// Before 3.14 it unwinds such a thread, through frames of ours that promise not to throw:
// std::terminate. So no thread of the library calls Python any more once the interpreter ends, and
// a thread that comes back to Python then sleeps until the process is gone, as it does under
// CPython 3.14.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>

#include <thread>
#include <utility>

namespace deltawire::python {

namespace nb = nanobind;

// For a thread that has nowhere to go back to.
[[noreturn]] void sleep_for_ever() noexcept;

// Other threads of Python's may run as long as this lives.
class GilReleased {
 public:
  GilReleased() noexcept : state_(PyEval_SaveThread()) {}
  ~GilReleased();
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* const state_;
};

// The GIL as long as this lives; in any thread, which may have it already. Nothing is `taken` when
// the interpreter is ending: Python must not be touched then.
class GilTaken {
 public:
  GilTaken();
  ~GilTaken();
  GilTaken(const GilTaken&) = delete;
  GilTaken& operator=(const GilTaken&) = delete;

  bool taken() const noexcept { return taken_; }

 private:
  bool taken_ = false;
  PyGILState_STATE state_{};
};

// Whether the library is calling Python in this thread.
bool is_inside_a_callback() noexcept;

// Runs `body`, which touches nothing of Python's, and lets other Python threads run meanwhile.
template <class Body>
auto without_gil(Body&& body) {
  const GilReleased released;
  return body();
}

// Ends what a pointer owns, whose threads may log until then. Python collects garbage in whichever
// thread it runs, and that may be one of these, in a callback: it cannot wait for itself.
template <class Pointer>
void let_go(Pointer value) {
  if (value == nullptr) return;
  if (is_inside_a_callback()) {
    std::thread([value = std::move(value)]() mutable { value.reset(); }).detach();
  } else {
    without_gil([&] { value.reset(); });
  }
}

// Lets go of what is Python's, in any thread: a pointer or an object. When the interpreter is
// ending it stays, for nobody may touch it then.
template <class Owner>
void drop(Owner* owner) {
  const GilTaken gil;
  if (!gil.taken()) static_cast<void>(owner->release());
  owner->reset();
}

// body() with the GIL; `otherwise` when the interpreter is ending.
template <class T, class Body>
T with_gil(T otherwise, Body&& body) {
  const GilTaken gil;
  if (!gil.taken()) return otherwise;
  try {
    return body();
  } catch (abi::__forced_unwind&) {
    sleep_for_ever();  // before anything here gives back a GIL that it does not have
  }
}

// Sees to it that the end of the interpreter is heard of, here and by `_core.is_ending()`. Once,
// when the extension is imported.
void watch_for_the_end(nb::module_& module);

}  // namespace deltawire::python
