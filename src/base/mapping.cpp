#include "base/mapping.h"

#include <fcntl.h>
#include <signal.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "base/thread_pool.h"

namespace deltawire {
namespace {

using Slot = Mapping::Slot;

constinit std::atomic<Slot*> g_slots{nullptr};
constinit std::mutex g_handler_mutex;
uintptr_t g_page_bytes = 0;
struct sigaction g_before;  // the previous handler

// Descriptors are a limited resource of the process.
constexpr int kMostDescriptors = 256;
constinit std::atomic<int> g_descriptors{0};

// The fault passed on last. A handler that neither repairs it nor ends the process would be called
// forever.
constinit std::atomic<uintptr_t> g_handed_address{0};
constinit std::atomic<long> g_handed_thread{0};
constinit std::atomic<int> g_handed_times{0};
constexpr int kPatience = 3;

// Only what a signal handler may do: atomics and system calls.
Slot* find_slot(uintptr_t address) {
  for (Slot* slot = g_slots.load(); slot != nullptr; slot = slot->next) {
    const uintptr_t begin = slot->begin.load();
    if (begin != 0 && address >= begin && address < slot->end.load()) return slot;
  }
  return nullptr;
}

// Replaces everything from the failed page to the end, since a truncated file has nothing after it.
bool mend(Slot* slot, uintptr_t address) {
  const uintptr_t page = address & ~(g_page_bytes - 1);
  const int access = slot->writable.load() ? PROT_READ | PROT_WRITE : PROT_READ;
  slot->broken.store(true);  // first: a reader must not see zeros without the mark
  return ::mmap(reinterpret_cast<void*>(page), slot->end.load() - page, access,
                MAP_FIXED | MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0) != MAP_FAILED;
}

void die(int signal) {
  struct sigaction standard = {};
  standard.sa_handler = SIG_DFL;
  ::sigaction(signal, &standard, nullptr);
  ::raise(signal);
}

void hand_on(int signal, siginfo_t* info, void* context) {
  const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
  const long thread = ::syscall(SYS_gettid);
  if (g_handed_address.exchange(address) != address || g_handed_thread.exchange(thread) != thread) {
    g_handed_times.store(0);
  }
  const bool handled = g_before.sa_handler != SIG_DFL && g_before.sa_handler != SIG_IGN;
  if (!handled || ++g_handed_times > kPatience) {
    die(signal);
  } else if ((g_before.sa_flags & SA_SIGINFO) != 0) {
    g_before.sa_sigaction(signal, info, context);
  } else {
    g_before.sa_handler(signal);
  }
}

void on_bus_error(int signal, siginfo_t* info, void* context) {
  const int error = errno;
  if (info->si_code > 0) {  // a fault, not somebody's kill()
    const auto address = reinterpret_cast<uintptr_t>(info->si_addr);
    Slot* const slot = find_slot(address);
    if (slot != nullptr && mend(slot, address)) {
      errno = error;
      return;
    }
  }
  hand_on(signal, info, context);
  errno = error;
}

// Called for every mapping: a program may install its own handler at any time, and faults are then
// passed on to that one.
void ensure_handler() {
  const std::lock_guard lock(g_handler_mutex);
  struct sigaction now;
  if (::sigaction(SIGBUS, nullptr, &now) != 0) return;
  if ((now.sa_flags & SA_SIGINFO) != 0 && now.sa_sigaction == on_bus_error) return;
  g_page_bytes = uintptr_t(::sysconf(_SC_PAGESIZE));
  g_before = now;
  struct sigaction ours = {};
  ours.sa_sigaction = on_bus_error;
  // NODEFER: the handler that gets the fault next may raise it again or map files.
  ours.sa_flags = SA_SIGINFO | SA_ONSTACK | SA_NODEFER;
  ::sigemptyset(&ours.sa_mask);
  ::sigaction(SIGBUS, &ours, nullptr);
}

// A free slot, or a new one; null when there is no memory.
Slot* take_slot(uintptr_t begin, uintptr_t end, bool writable) {
  constexpr uintptr_t kTaken = UINTPTR_MAX;
  Slot* slot = g_slots.load();
  for (; slot != nullptr; slot = slot->next) {
    uintptr_t expected = 0;
    if (slot->begin.compare_exchange_strong(expected, kTaken)) break;
  }
  const bool made = slot == nullptr;
  if (made) {
    slot = new (std::nothrow) Slot;
    if (slot == nullptr) return nullptr;
  }
  slot->end.store(end);
  slot->writable.store(writable);
  slot->broken.store(false);
  slot->fd.store(-1);
  slot->begin.store(begin);
  if (made) {
    slot->next = g_slots.load();
    while (!g_slots.compare_exchange_weak(slot->next, slot)) {
    }
  }
  return slot;
}

// munmap() takes 20 ms or more per touched GB on one thread. This does most of that work on
// several.
void forget_pages(uint8_t* data, size_t size) {
  constexpr size_t kPieceBytes = size_t{64} << 20, kMostThreads = 8;
  const size_t pieces = (size + kPieceBytes - 1) / kPieceBytes;
  const size_t others = std::min({pieces, size_t{usable_cores()}, kMostThreads}) - 1;
  if (others == 0) return;
  std::atomic<size_t> next{0};
  const auto forget = [&](size_t) {
    for (size_t i; (i = next++) < pieces;) {
      uint8_t* const piece = data + i * kPieceBytes;
      (void)::madvise(piece, std::min(kPieceBytes, size - i * kPieceBytes), MADV_DONTNEED);
    }
  };
  std::vector<std::thread> threads;
  try {
    start_threads(others, forget, &threads);
  } catch (const std::bad_alloc&) {  // then alone
  }
  forget(0);
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

Mapping::Mapping(int fd, size_t size, Access access) noexcept {
  const bool writable = access == Access::kReadWrite;
  ensure_handler();
  void* const data =
      ::mmap(nullptr, size, writable ? PROT_READ | PROT_WRITE : PROT_READ, MAP_SHARED, fd, 0);
  if (data == MAP_FAILED) return;
  const auto begin = reinterpret_cast<uintptr_t>(data);
  const uintptr_t pages = (size + g_page_bytes - 1) & ~(g_page_bytes - 1);
  slot_ = take_slot(begin, begin + pages, writable);
  if (slot_ == nullptr) {
    ::munmap(data, size);
    errno = ENOMEM;
    return;
  }
  data_ = static_cast<uint8_t*>(data);
  size_ = size;
}

Mapping::~Mapping() {
  if (data_ == nullptr) return;
  if (const int fd = slot_->fd.exchange(-1); fd >= 0) {
    ::close(fd);
    --g_descriptors;
  }
  slot_->begin.store(0);
  forget_pages(data_, size_);
  ::munmap(data_, size_);
}

void Mapping::read_by_descriptor(int fd) noexcept {
  if (slot_ == nullptr || slot_->fd.load() >= 0) return;
  const int own = ++g_descriptors <= kMostDescriptors ? ::fcntl(fd, F_DUPFD_CLOEXEC, 0) : -1;
  if (own < 0) {
    --g_descriptors;
    return;
  }
  (void)::posix_fadvise(own, 0, 0, POSIX_FADV_SEQUENTIAL);
  slot_->fd.store(own);
}

Mapping::Mapping(Mapping&& other) noexcept
    : data_(std::exchange(other.data_, nullptr)),
      size_(std::exchange(other.size_, 0)),
      slot_(std::exchange(other.slot_, nullptr)) {}

Mapping& Mapping::operator=(Mapping&& other) noexcept {
  std::swap(data_, other.data_);
  std::swap(size_, other.size_);
  std::swap(slot_, other.slot_);
  return *this;
}

void copy_out(const uint8_t* from, uint8_t* to, size_t size) noexcept {
  Slot* const slot = find_slot(reinterpret_cast<uintptr_t>(from));
  const int fd = slot == nullptr ? -1 : slot->fd.load();
  if (fd < 0) {
    std::memcpy(to, from, size);
    return;
  }
  const auto offset = off_t(reinterpret_cast<uintptr_t>(from) - slot->begin.load());
  for (size_t done = 0; done < size;) {
    const ssize_t n = ::pread(fd, to + done, size - done, offset + off_t(done));
    if (n < 0 && errno == EINTR) continue;
    if (n < 0 && errno == EFAULT) {  // `to` is a broken mapping, which the memcpy will mark
      std::memcpy(to + done, from + done, size - done);
      return;
    }
    if (n <= 0) {  // truncated or unreadable: the same result as for a fault
      slot->broken.store(true);
      std::memset(to + done, 0, size - done);
      return;
    }
    done += size_t(n);
  }
}

double resident_share(const uint8_t* bytes, size_t size) noexcept {
  const auto page = uintptr_t(::sysconf(_SC_PAGESIZE));
  const auto first = reinterpret_cast<uintptr_t>(bytes) & ~(page - 1);
  const uintptr_t end = reinterpret_cast<uintptr_t>(bytes) + size;
  constexpr size_t kPages = 4096;
  unsigned char there[kPages];
  uint64_t resident = 0, pages = 0;
  for (uintptr_t at = first; at < end; at += kPages * page) {
    const size_t length = std::min<size_t>(kPages * page, end - at);
    const size_t count = (length + page - 1) / page;
    pages += count;
    if (::mincore(reinterpret_cast<void*>(at), length, there) != 0) continue;
    resident += uint64_t(std::count_if(there, there + count, [](auto one) { return one & 1; }));
  }
  return pages == 0 ? 1 : double(resident) / double(pages);
}

}  // namespace deltawire
