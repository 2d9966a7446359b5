// How Python calls into the library: without the GIL, one call at a time, in the process that made
// the object.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

#include <atomic>
#include <memory>
#include <mutex>
#include <thread>
#include <utility>

#include "gil.h"
#include "status.h"
#include "watcher.h"

namespace deltawire::python {

// Rethrows an exception that Python raised during the call, rather than the Cancelled it caused.
template <class Outcome>
void end_call(const Outcome& outcome, Watcher* watcher) {
  watcher->rethrow();
  if constexpr (requires { outcome.ok(); }) {
    if (!outcome.ok()) return;  // raise() uses the noted exception as the cause
  }
  forget_raised();
}

// A single call with a progress callback.
template <class Body>
auto watched(nb::object callback, Body&& body) {
  Watcher watcher(std::move(callback));
  auto result = without_gil([&] { return body(watcher.progress()); });
  end_call(result, &watcher);
  return result;
}

// An object of the library that a Python object owns.
//
// A forked child process has a copy of its memory but none of its threads. There calls are refused,
// and the object is leaked: its destructor would wait for threads that do not exist.
template <class T>
class Owned {
 public:
  // `open(progress)` creates the object.
  template <class Open>
  Owned(const char* what, nb::object callback, Open&& open)
      : what_(what), watcher_(std::move(callback)), process_(getpid()) {
    Result<T> opened = without_gil([&] { return open(watcher_.progress()); });
    end_call(opened, &watcher_);
    value_ = std::make_unique<T>(unwrap(std::move(opened)));
  }
  ~Owned() {
    if (getpid() != process_) {
      static_cast<void>(value_.release());
    } else {
      let_go(std::move(value_));
    }
  }
  Owned(const Owned&) = delete;
  Owned& operator=(const Owned&) = delete;

  // body(value) -> Status or Result, without the GIL. A second thread waits for the first.
  template <class Body>
  auto call(Body&& body) {
    check_process();
    auto result = without_gil([&] {
      const Turn turn(this);
      if (!value_) throw StatusError(invalid_argument(std::string(what_) + " is closed"));
      return body(*value_);
    });
    end_call(result, &watcher_);
    return result;
  }

  // InvalidArgument in a forked child.
  void check_process() const {
    if (getpid() == process_) return;
    throw StatusError(
        invalid_argument(std::string(what_) + " was made by process " + std::to_string(process_) +
                         " and cannot be used in a forked child process: create one there"));
  }

  void close() {
    check_process();
    without_gil([&] {
      const Turn turn(this);
      value_.reset();
    });
  }
  nb::object& callback() noexcept { return watcher_.callback(); }
  bool closed() const noexcept { return value_ == nullptr; }

 private:
  class Turn {
   public:
    explicit Turn(Owned* owned) : owned_(*owned) {
      if (owned_.caller_ == std::this_thread::get_id()) {
        throw StatusError(invalid_argument(std::string(owned_.what_) +
                                           " is busy: its own callbacks cannot call it"));
      }
      owned_.mutex_.lock();
      owned_.caller_ = std::this_thread::get_id();
    }
    ~Turn() {
      owned_.caller_ = std::thread::id();
      owned_.mutex_.unlock();
    }

   private:
    Owned& owned_;
  };

  const char* what_;
  Watcher watcher_;
  const pid_t process_;
  std::unique_ptr<T> value_;
  std::mutex mutex_;
  std::atomic<std::thread::id> caller_;
};

// Shows the callback to Python's garbage collector: it often refers back to the object's owner.
template <class T>
struct Collected {
  static int traverse(PyObject* self, visitproc visit, void* arg) {
    Py_VISIT(Py_TYPE(self));
    if (nb::inst_ready(self)) Py_VISIT(nb::inst_ptr<Owned<T>>(self)->callback().ptr());
    return 0;
  }
  static int clear(PyObject* self) {
    nb::inst_ptr<Owned<T>>(self)->callback() = nb::none();
    return 0;
  }
  static inline PyType_Slot slots[] = {{Py_tp_traverse, reinterpret_cast<void*>(traverse)},
                                       {Py_tp_clear, reinterpret_cast<void*>(clear)},
                                       {0, nullptr}};
};

template <class T>
nb::class_<Owned<T>> bind_owned(nb::module_& module, const char* name) {
  return nb::class_<Owned<T>>(module, name, nb::type_slots(Collected<T>::slots));
}

}  // namespace deltawire::python
