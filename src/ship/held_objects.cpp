#include "ship/held_objects.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "base/guard.h"
#include "base/log.h"
#include "chain/names.h"

namespace deltawire {
namespace {

Status scratch_error(const std::string& what) {
  return io_error(what + ": " + std::strerror(errno));
}

// A file that nobody else finds, and that goes with its descriptor.
int open_nameless(const std::filesystem::path& folder) {
  int fd = ::open(folder.c_str(), O_TMPFILE | O_RDWR | O_CLOEXEC, 0600);
  if (fd >= 0 || (errno != EOPNOTSUPP && errno != EISDIR)) return fd;
  std::string path = (folder / "deltawire-ship-XXXXXX").string();
  fd = ::mkostemp(path.data(), O_CLOEXEC);
  if (fd >= 0) ::unlink(path.c_str());
  return fd;
}

}  // namespace

Result<std::shared_ptr<HeldObject>> HeldObject::in_memory(uint64_t size_bytes) {
  return guard_memory("receiving", [&]() -> Result<std::shared_ptr<HeldObject>> {
    std::shared_ptr<HeldObject> object(new HeldObject(size_bytes));
    object->bytes_.resize(size_t(size_bytes));
    return object;
  });
}

Result<std::shared_ptr<HeldObject>> HeldObject::in_folder(const std::filesystem::path& folder,
                                                          uint64_t size_bytes) {
  std::shared_ptr<HeldObject> object(new HeldObject(size_bytes));
  object->fd_ = open_nameless(folder);
  if (object->fd_ < 0) return scratch_error(folder.string());
  // Now, not in the middle of a version. Where that is not supported, writing will tell.
  if (size_bytes != 0 && ::fallocate(object->fd_, 0, 0, off_t(size_bytes)) != 0 &&
      errno != EOPNOTSUPP) {
    return scratch_error(folder.string());
  }
  return object;
}

HeldObject::~HeldObject() {
  if (fd_ >= 0) ::close(fd_);
}

Status HeldObject::append(Bytes bytes) {
  if (bytes.size() > size_bytes_ - received_) return corruption("more bytes than were announced");
  if (is_in_memory()) {
    if (!bytes.empty()) std::memcpy(bytes_.data() + received_, bytes.data(), bytes.size());
  } else {
    for (size_t at = 0; at < bytes.size();) {
      const ssize_t count =
          ::pwrite(fd_, bytes.data() + at, bytes.size() - at, off_t(received_ + at));
      if (count < 0 && errno != EINTR) return scratch_error("scratch");
      if (count > 0) at += size_t(count);
    }
  }
  hasher_.update(bytes);
  received_ += bytes.size();
  return {};
}

Digest HeldObject::sha256() { return hasher_.finish(); }

Status HeldObject::read(uint64_t offset, MutableBytes out) const {
  if (offset > size_bytes_ || out.size() > size_bytes_ - offset) {
    return corruption("ends at byte " + std::to_string(size_bytes_));
  }
  if (is_in_memory()) {
    if (!out.empty()) std::memcpy(out.data(), bytes_.data() + offset, out.size());
    return {};
  }
  for (size_t at = 0; at < out.size();) {
    const ssize_t count = ::pread(fd_, out.data() + at, out.size() - at, off_t(offset + at));
    if (count == 0) return io_error("scratch: the file was cut short");
    if (count < 0 && errno != EINTR) return scratch_error("scratch");
    if (count > 0) at += size_t(count);
  }
  return {};
}

Status HeldObjects::add(std::string_view name, uint64_t object_bytes, uint64_t offset,
                        Bytes bytes) {
  DW_RETURN_IF_ERROR(check_object_name(name));
  const std::optional<AttemptFolder> folder = attempt_folder(name);
  if (!folder) return corruption(std::string(name) + ": is no part of a version");
  if (offset > object_bytes || bytes.size() > object_bytes - offset) {
    return corruption(std::string(name) + ": bytes behind its end");
  }
  const std::lock_guard lock(mutex_);
  if (past_ && folder->version <= *past_) return {};
  auto found = entries_.find(name);
  if (found == entries_.end()) {
    Entry entry{folder->version, false, 0, make_object(folder->version, object_bytes)};
    found = entries_.emplace(name, std::move(entry)).first;
  }
  std::shared_ptr<HeldObject>& object = found->second.object;
  if (!object || found->second.ready) return {};
  if (object->size() != object_bytes) {
    return corruption(std::string(name) + ": announced with two sizes");
  }
  const uint64_t received = object->received();
  if (offset + bytes.size() <= received) return {};
  Status status = offset > received ? corruption("bytes are missing")
                                    : object->append(bytes.subspan(size_t(received - offset)));
  if (status.ok()) {
    if (object->received() == object->size()) found->second.number = ++num_whole_;
    return {};
  }
  log_event(LogLevel::kWarning, "ship.not_kept", {{"object", name}, {"error", status}});
  const uint64_t version = found->second.version;
  erase(found);
  entries_.emplace(name, Entry{version, false, 0, nullptr});  // the rest of it is passed over
  return {};
}

std::shared_ptr<HeldObject> HeldObjects::make_object(uint64_t version, uint64_t size_bytes) {
  for (const bool in_memory : {true, false}) {
    if (!make_room(version, size_bytes, in_memory)) continue;
    Result<std::shared_ptr<HeldObject>> object =
        in_memory ? HeldObject::in_memory(size_bytes)
                  : HeldObject::in_folder(limits_.scratch, size_bytes);
    if (object.ok()) {
      (in_memory ? use_.memory_bytes : use_.scratch_bytes) += size_bytes;
      use_.most_memory_bytes = std::max(use_.most_memory_bytes, use_.memory_bytes);
      return *object;
    }
    log_event(LogLevel::kWarning, "ship.no_room", {{"error", object.status()}});
  }
  return nullptr;
}

// Older versions go first: who is far behind needs another way than these.
bool HeldObjects::make_room(uint64_t version, uint64_t size_bytes, bool in_memory) {
  const uint64_t limit = in_memory ? limits_.memory_bytes : limits_.scratch_bytes;
  const uint64_t& used = in_memory ? use_.memory_bytes : use_.scratch_bytes;
  if (size_bytes > limit) return false;
  while (used > limit - size_bytes) {
    auto oldest = entries_.end();
    for (auto at = entries_.begin(); at != entries_.end(); ++at) {
      const Entry& entry = at->second;
      if (!entry.object || entry.object->is_in_memory() != in_memory) continue;
      if (entry.version >= version) continue;
      if (oldest == entries_.end() || entry.version < oldest->second.version) oldest = at;
    }
    if (oldest == entries_.end()) return false;
    erase(oldest);
  }
  return true;
}

HeldObjects::Entries::iterator HeldObjects::erase(Entries::iterator at) {
  if (const auto& object = at->second.object) {
    (object->is_in_memory() ? use_.memory_bytes : use_.scratch_bytes) -= object->size();
  }
  return entries_.erase(at);
}

std::vector<std::string> HeldObjects::commit(uint64_t version, const std::vector<PartRef>& parts) {
  std::vector<std::string> damaged;
  const std::lock_guard lock(mutex_);
  for (const PartRef& part : parts) {
    const auto found = entries_.find(part.name);
    if (found == entries_.end() || !found->second.object || found->second.ready) continue;
    HeldObject& object = *found->second.object;
    if (object.received() != object.size()) continue;  // dropped below
    found->second.ready = object.size() == part.size_bytes && object.sha256() == part.sha256;
    if (!found->second.ready) damaged.push_back(part.name);
  }
  for (auto at = entries_.begin(); at != entries_.end();) {
    const bool of_no_use = at->second.version <= version && !at->second.ready;
    at = of_no_use ? erase(at) : std::next(at);
  }
  return damaged;
}

void HeldObjects::drop_up_to(uint64_t version) {
  const std::lock_guard lock(mutex_);
  past_ = version;
  for (auto at = entries_.begin(); at != entries_.end();) {
    at = at->second.version <= version ? erase(at) : std::next(at);
  }
}

void HeldObjects::clear() {
  const std::lock_guard lock(mutex_);
  past_.reset();
  for (auto at = entries_.begin(); at != entries_.end();) at = erase(at);
}

std::vector<SentObject> HeldObjects::sent_ahead(uint64_t seen) const {
  std::vector<SentObject> sent;
  const std::lock_guard lock(mutex_);
  for (const auto& [name, entry] : entries_) {
    if (entry.number > seen && !entry.ready) sent.push_back({entry.number, name, entry.object});
  }
  std::sort(sent.begin(), sent.end(),
            [](const SentObject& a, const SentObject& b) { return a.number < b.number; });
  return sent;
}

std::shared_ptr<const HeldObject> HeldObjects::find(std::string_view name) const {
  const std::lock_guard lock(mutex_);
  const auto found = entries_.find(name);
  if (found == entries_.end() || !found->second.ready) return nullptr;
  return found->second.object;
}

HeldObjects::Use HeldObjects::use() const {
  const std::lock_guard lock(mutex_);
  return use_;
}

}  // namespace deltawire
