// Child processes for tests of what happens when one dies or hangs.
#pragma once

#include <signal.h>
#include <sys/wait.h>
#include <unistd.h>

#include "test_files.h"

namespace deltawire::testing {

// Runs body() and then waits to be killed; kills what is left at the end. Make them before any
// thread: a child has only the one that forked it.
class Child {
 public:
  template <class Body>
  explicit Child(const Body& body) : pid_(::fork()) {
    if (pid_ != 0) return;
    body();
    for (;;) ::pause();
  }
  Child(Child&& other) noexcept : pid_(std::exchange(other.pid_, -1)) {}
  ~Child() { kill(); }

  void kill() {
    if (pid_ <= 0) return;
    ::kill(pid_, SIGKILL);
    ::waitpid(pid_, nullptr, 0);
    pid_ = -1;
  }
  // Returns when it has stopped: it answers nobody, but its connections stay.
  void hang() {
    ::kill(pid_, SIGSTOP);
    ::waitpid(pid_, nullptr, WUNTRACED);
  }

 private:
  pid_t pid_;
};

}  // namespace deltawire::testing
