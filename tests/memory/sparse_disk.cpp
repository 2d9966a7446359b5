// Preloaded into a program, it leaves holes where the program writes zeros and reserves no disk, so
// that files of a sparse model stay sparse wherever they are copied: a model of 20 GB then fits on
// any disk. The program's reads and its memory are unaffected.
#include <dlfcn.h>
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

namespace {

constexpr size_t kWorthAHole = 4096;

bool all_zero(const void* data, size_t size) {
  const char* const bytes = static_cast<const char*>(data);
  return size >= kWorthAHole && bytes[0] == 0 && std::memcmp(bytes, bytes + 1, size - 1) == 0;
}

// Whether [offset, offset + size) may be left out of a file: there is no data yet.
bool skip(int fd, const void* data, size_t size, off_t offset) {
  struct stat info;
  if (!all_zero(data, size) || ::fstat(fd, &info) != 0 || !S_ISREG(info.st_mode)) return false;
  const off_t end = offset + off_t(size);
  if (offset < info.st_size) {  // inside of it: only where there is a hole already
    const off_t used = ::lseek(fd, 0, SEEK_CUR);
    const off_t next = ::lseek(fd, offset, SEEK_DATA);
    ::lseek(fd, used, SEEK_SET);
    if (next >= 0 && next < end) return false;
  }
  return end <= info.st_size || ::ftruncate(fd, end) == 0;
}

template <class Function>
Function* next(const char* name) {
  return reinterpret_cast<Function*>(::dlsym(RTLD_NEXT, name));
}

}  // namespace

extern "C" {

ssize_t write(int fd, const void* data, size_t size) {
  static auto* const real = next<ssize_t(int, const void*, size_t)>("write");
  const off_t at = ::lseek(fd, 0, SEEK_CUR);
  if (at < 0 || !skip(fd, data, size, at)) return real(fd, data, size);
  ::lseek(fd, at + off_t(size), SEEK_SET);
  return ssize_t(size);
}

ssize_t pwrite(int fd, const void* data, size_t size, off_t offset) {
  static auto* const real = next<ssize_t(int, const void*, size_t, off_t)>("pwrite");
  return skip(fd, data, size, offset) ? ssize_t(size) : real(fd, data, size, offset);
}

ssize_t pwrite64(int fd, const void* data, size_t size, off_t offset) {
  return pwrite(fd, data, size, offset);
}

int posix_fallocate(int fd, off_t offset, off_t size) {
  struct stat info;
  if (::fstat(fd, &info) != 0) return errno;
  return offset + size <= info.st_size || ::ftruncate(fd, offset + size) == 0 ? 0 : errno;
}

int posix_fallocate64(int fd, off_t offset, off_t size) {
  return posix_fallocate(fd, offset, size);
}

}  // extern "C"
