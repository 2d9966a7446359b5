#include "mirror/copy_objects.h"

#include "base/file.h"
#include "base/folder.h"
#include "base/sync_point.h"
#include "chain/part_reader.h"
#include "store/bodies.h"
#include "transfer/fetch.h"
#include "transfer/upload_queue.h"

namespace deltawire {
namespace {

// On disk at one time, unless one object is larger.
constexpr uint64_t kMaxOnTheWay = uint64_t{1} << 30;

struct TemporaryObject {
  explicit TemporaryObject(const std::filesystem::path& folder)
      : path(temporary_path(folder / "object")) {}
  ~TemporaryObject() {
    std::error_code ignored;
    std::filesystem::remove(path, ignored);
  }
  const std::filesystem::path path;
};

}  // namespace

Result<bool> ObjectCopier::is_there(const PartRef& object,
                                    const std::function<bool()>& keep_going) {
  const Result<ObjectInfo> info = to_.stat(object.name);
  if (!info.ok() && info.status().code() != Code::kNotFound) return info.status();
  if (!info.ok() || info->size_bytes != object.size_bytes) return false;
  if (!options_.verify) return true;
  const Status status = check_part(to_, object, [&](uint64_t) { return keep_going(); });
  if (status.ok()) return true;
  if (is_damaged_or_gone(status)) return false;
  return status;
}

Status ObjectCopier::fetch_and_put(const PartRef& object, const std::atomic<bool>& stop,
                                   std::atomic<uint64_t>* received) {
  const TemporaryObject file(options_.folder);
  uint64_t counted = 0;
  {
    Fetch fetch(from_, {{object, file.path}});
    DW_RETURN_IF_ERROR(fetch.finish([&](uint64_t done, uint64_t) {
      received->fetch_add(done - counted);
      counted = done;
      return !stop.load();
    }));
  }
  received->fetch_add(object.size_bytes - counted);
  DW_ASSIGN_OR_RETURN(auto mapped, MappedFile::open(file.path));
  const std::shared_ptr<const Body> body = file_body(std::move(mapped));
  DW_RETURN_IF_ERROR(to_.put(object.name, StoppableBody(*body, stop)));
  DW_SYNC_POINT("mirror: object put");
  return {};
}

Result<Copied> ObjectCopier::copy(const std::vector<PartRef>& objects,
                                  const std::function<bool()>& interrupt) {
  uint64_t total = 0;
  for (const PartRef& object : objects) total += object.size_bytes;
  std::atomic<uint64_t> received{0}, num_copied{0}, num_there{0}, bytes{0};
  Copied copied;
  {
    UploadQueue queue("mirroring", std::max(1U, options_.transfers), kMaxOnTheWay, PublishClock(),
                      [&] { return !options_.progress || options_.progress(received, total); });
    for (const PartRef& object : objects) {
      if (interrupt && interrupt()) {
        copied.interrupted = true;
        break;
      }
      DW_RETURN_IF_ERROR(queue.push(object.size_bytes, [&, this]() -> Status {
        const std::atomic<bool>& stop = queue.stopping();
        DW_ASSIGN_OR_RETURN(const bool there, is_there(object, [&] { return !stop.load(); }));
        if (there) {
          received += object.size_bytes;
          ++num_there;
          return {};
        }
        DW_RETURN_IF_ERROR(fetch_and_put(object, stop, &received));
        ++num_copied;
        bytes += object.size_bytes;
        return {};
      }));
    }
    DW_RETURN_IF_ERROR(queue.finish());
  }
  copied.num_copied = num_copied;
  copied.num_there = num_there;
  copied.bytes = bytes;
  return copied;
}

}  // namespace deltawire
