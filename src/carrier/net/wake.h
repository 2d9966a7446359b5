// Something that poll() can wait for and any thread can set off.
#pragma once

#include <sys/eventfd.h>

#include "base/file.h"

namespace deltawire {

class Wake {
 public:
  Wake() : fd_(::eventfd(0, EFD_CLOEXEC | EFD_NONBLOCK)) {}
  bool ok() const { return fd_.get() >= 0; }
  int fd() const { return fd_.get(); }
  void set() const noexcept { (void)!::write(fd_.get(), &kOne, sizeof kOne); }
  void clear() const noexcept {
    uint64_t count;
    (void)!::read(fd_.get(), &count, sizeof count);
  }

 private:
  static constexpr uint64_t kOne = 1;
  Descriptor fd_;
};

}  // namespace deltawire
