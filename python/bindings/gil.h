// Releasing and acquiring the GIL in a process whose interpreter may be finalizing.
//
// During finalization CPython ends every thread, except the finalizing one, that requests the GIL.
// Before 3.14 it unwinds such a thread, which calls std::terminate in our noexcept frames.
// Therefore threads of the library stop calling Python once finalization has begun, and a thread
// that returns to Python then sleeps until the process exits, as in CPython 3.14.
#pragma once

#include <cxxabi.h>
#include <nanobind/nanobind.h>

#include <thread>
#include <utility>

namespace deltawire::python {

namespace nb = nanobind;

// For a thread that can no longer return to Python.
[[noreturn]] void sleep_for_ever() noexcept;

// Releases the GIL during its lifetime.
class GilReleased {
 public:
  GilReleased() noexcept : state_(PyEval_SaveThread()) {}
  ~GilReleased();
  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* const state_;
};

// Holds the GIL during its lifetime, in any thread, reentrantly. If the interpreter is finalizing
// it is not taken(), and Python must not be used.
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

// Whether this thread is inside a call from the library to Python.
bool is_inside_a_callback() noexcept;

// Runs `body`, which must not use Python, without the GIL.
template <class Body>
auto without_gil(Body&& body) {
  const GilReleased released;
  return body();
}

// Destroys an object whose threads may log until they end. Python may collect garbage in one of
// these threads, during a callback, and that thread cannot wait for itself.
template <class Pointer>
void let_go(Pointer value) {
  if (value == nullptr) return;
  if (is_inside_a_callback()) {
    std::thread([value = std::move(value)]() mutable { value.reset(); }).detach();
  } else {
    without_gil([&] { value.reset(); });
  }
}

// Releases a Python reference in any thread. Leaks it if the interpreter is finalizing.
template <class Owner>
void drop(Owner* owner) {
  const GilTaken gil;
  if (!gil.taken()) static_cast<void>(owner->release());
  owner->reset();
}

// body() with the GIL; returns `otherwise` if the interpreter is finalizing.
template <class T, class Body>
T with_gil(T otherwise, Body&& body) {
  const GilTaken gil;
  if (!gil.taken()) return otherwise;
  try {
    return body();
  } catch (abi::__forced_unwind&) {
    sleep_for_ever();  // before a destructor here releases a GIL that this thread does not hold
  }
}

// Registers the atexit hook behind `_core.is_ending()`. Called once, when the extension is
// imported.
void watch_for_the_end(nb::module_& module);

}  // namespace deltawire::python
