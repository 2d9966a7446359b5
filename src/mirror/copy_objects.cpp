#include "mirror/copy_objects.h"

#include "base/file.h"
#include "base/folder.h"
#include "base/sync_point.h"
#include "chain/head.h"
#include "chain/names.h"
#include "chain/part_reader.h"
#include "store/bodies.h"
#include "transfer/fetch.h"
#include "transfer/upload_queue.h"

namespace deltawire {

Result<std::string> read_text(Store& store, const std::string& name, uint64_t max_bytes) {
  DW_ASSIGN_OR_RETURN(std::string text, store.get(name, max_bytes));
  DW_ASSIGN_OR_RETURN(const std::string again, store.get(name, max_bytes));
  if (text == again) return text;
  return unavailable(store.url() + "/" + name + ": two reads returned different bytes");
}

Result<FarEnd> FarEnd::open(const Chain& source, std::shared_ptr<Store> store, bool single_writer) {
  DW_ASSIGN_OR_RETURN(const Capabilities can, store->capabilities());
  if (!can.put_if_absent && !single_writer) {
    return unsupported(store->url() +
                       ": this store cannot put an object only if it is absent, so two mirrors "
                       "could overwrite each other");
  }
  const Result<std::string> there = store->get(kRunName, kMaxHintBytes);
  if (!there.ok()) {
    if (there.status().code() != Code::kNotFound) return there.status();
    DW_ASSIGN_OR_RETURN(const auto listed, listed_from(*store, 0));
    if (!listed.empty()) {
      return corruption(store->url() + ": holds version " + std::to_string(listed.front()) +
                        ", but no " + std::string(kRunName) + ", so its run is unknown");
    }
    DW_ASSIGN_OR_RETURN(const std::string text,
                        read_text(source.store(), std::string(kRunName), kMaxHintBytes));
    DW_RETURN_IF_ERROR(put_record(*store, can, std::string(kRunName), text).status());
    DW_SYNC_POINT("mirror: run made");
  }
  DW_ASSIGN_OR_RETURN(Chain chain, Chain::open(std::move(store), source.keys()));
  if (chain.run() != source.run()) {
    return base_mismatch(chain.store().url() + ": holds run " + chain.run() + ", but " +
                         source.store().url() + " holds run " + source.run() +
                         "; choose an empty destination for the mirror");
  }
  return FarEnd(std::move(chain), can);
}

Result<PutRecord> FarEnd::put_record(Store& store, const Capabilities& can, const std::string& name,
                                     const std::string& text) {
  const uint64_t most = std::max<uint64_t>(kMaxManifestBytes, text.size());
  if (can.put_if_absent) {
    Status status = store.put_if_absent(name, MemoryBody(text));
    if (status.ok()) return PutRecord::kPut;
    if (status.code() != Code::kConflict) return status;
  }
  const Result<std::string> there = store.get(name, most);
  if (there.ok()) return *there == text ? PutRecord::kThere : PutRecord::kOthers;
  if (there.status().code() != Code::kNotFound) return there.status();
  if (can.put_if_absent) return unavailable(store.url() + "/" + name + ": came and went");
  DW_RETURN_IF_ERROR(store.put(name, MemoryBody(text)));
  return PutRecord::kPut;
}

Result<PutRecord> FarEnd::put_record(const std::string& name, const std::string& text) {
  return put_record(store(), can_, name, text);
}

Status FarEnd::commit(uint64_t version, const std::string& text) {
  DW_SYNC_POINT("mirror: before commit");
  DW_ASSIGN_OR_RETURN(const PutRecord put, put_record(manifest_name(version), text));
  DW_SYNC_POINT("mirror: after commit");
  if (put == PutRecord::kOthers) {
    return conflict(store().url() + ": holds another version " + std::to_string(version) +
                    " of this run than the source: somebody publishes into the mirror");
  }
  // Only a hint: the version is committed whether or not this succeeds.
  const std::string hint = std::to_string(version) + "\n";
  (void)store().put(kHeadName, MemoryBody(hint));
  return {};
}

Result<bool> FarEnd::ends_with(std::optional<uint64_t> last) {
  DW_ASSIGN_OR_RETURN(const auto listed, listed_from(store(), last.value_or(0)));
  if (!last) return listed.empty();
  return listed.size() == 1 && listed.front() == *last;
}

namespace {

// Limit of disk space in use, unless a single object is larger.
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
