#include "publish/snapshot_log.h"

#include <algorithm>

#include "base/allocate.h"
#include "base/file.h"
#include "base/folder.h"
#include "base/mapping.h"
#include "codec/codec.h"
#include "format/layout.h"
#include "replica/journal_redo.h"
#include "replica/tensors.h"
#include "tensor/text.h"
#include "transfer/fetch.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kLoggedPieceBytes = uint64_t{4} << 20;

// A payload and the bytes of its tensor that it patches.
struct LoggedSlab {
  const Delta::Entry* item;
  ByteRange range;

  uint64_t end() const { return range.offset + range.size; }
};

class LoggedTensor final : public MadeBytes {
 public:
  // Slabs in the order of their versions; two of them are the same or do not meet.
  LoggedTensor(const TensorView& held, std::vector<LoggedSlab> slabs)
      : held_(held), slabs_(std::move(slabs)) {}

  uint64_t size() const noexcept override { return held_.bytes.size(); }
  Status read(uint64_t offset, MutableBytes out, ThreadPool* pool) const override {
    uint64_t begin = offset, end = offset + out.size();
    for (const LoggedSlab& slab : slabs_) {
      if (slab.range.offset >= offset + out.size() || slab.end() <= offset) continue;
      begin = std::min(begin, slab.range.offset);
      end = std::max(end, slab.end());
    }
    if (end - begin == out.size()) return make(begin, out, pool);
    DW_ASSIGN_OR_RETURN(const auto more, allocate_bytes(end - begin));
    DW_RETURN_IF_ERROR(make(begin, {more.get(), end - begin}, pool));
    std::copy_n(more.get() + (offset - begin), out.size(), out.data());
    return {};
  }

 private:
  // No slab reaches beyond these bytes.
  Status make(uint64_t begin, MutableBytes out, ThreadPool* pool) const {
    const size_t pieces = size_t((out.size() + kLoggedPieceBytes - 1) / kLoggedPieceBytes);
    parallel_for(pool, pieces, [&](size_t i, unsigned) {
      const uint64_t at = i * kLoggedPieceBytes,
                     size = std::min(kLoggedPieceBytes, out.size() - at);
      copy_out(held_.bytes.data() + begin + at, out.data() + at, size);
    });
    for (const LoggedSlab& slab : slabs_) {
      if (slab.range.offset >= begin + out.size() || slab.end() <= begin) continue;
      const Status status =
          find_codec(slab.item->entry.codec)
              ->apply(layout_of(held_.dtype), slab.item->payload,
                      out.subspan(slab.range.offset - begin, slab.range.size), pool);
      // The payload is what the manifest says: then what it was applied to is not what it should.
      if (status.code() == Code::kCorruption) {
        return base_mismatch("tensor " + quote(held_.name) + ": not what " + slab.item->place +
                             " patches: " + status.message());
      }
      DW_RETURN_IF_ERROR(Status(status));
    }
    return {};
  }

  const TensorView held_;
  const std::vector<LoggedSlab> slabs_;
};

class MadeFrom final : public MadeBytes {
 public:
  MadeFrom(std::shared_ptr<const MadeBytes> made, uint64_t begin, uint64_t size)
      : made_(std::move(made)), begin_(begin), size_(size) {}
  uint64_t size() const noexcept override { return size_; }
  Status read(uint64_t offset, MutableBytes out, ThreadPool* pool) const override {
    return made_->read(begin_ + offset, out, pool);
  }

 private:
  const std::shared_ptr<const MadeBytes> made_;
  const uint64_t begin_, size_;
};

Status cannot_log(uint64_t version, const std::string& why) {
  return unsupported("version " + std::to_string(version) + " cannot be logged: " + why);
}

// What is at `path` is the part, byte for byte.
bool is_part(const fs::path& path, const PartRef& part) {
  const Result<std::shared_ptr<MappedFile>> file = MappedFile::open(path);
  if (!file.ok() || (*file)->bytes().size() != part.size_bytes) return false;
  const Digest got = digest_of(DigestKind::kSha256, (*file)->bytes());
  return got == part.sha256 && (*file)->check_whole().ok();
}

Result<std::vector<LoggedSlab>> slabs_of(const TensorSteps& steps, uint64_t most_bytes) {
  std::vector<LoggedSlab> slabs;
  for (const Delta::Entry* const item : steps.entries) {
    DW_ASSIGN_OR_RETURN(const ByteRange range, slab_range(item->entry));
    if (range.size > most_bytes) return unsupported(item->place + ": patches too much at a time");
    slabs.push_back({item, range});
  }
  std::vector<LoggedSlab> sorted = slabs;
  std::sort(sorted.begin(), sorted.end(), [](const LoggedSlab& a, const LoggedSlab& b) {
    return std::pair(a.range.offset, a.end()) < std::pair(b.range.offset, b.end());
  });
  for (size_t i = 1; i < sorted.size(); ++i) {
    const LoggedSlab &before = sorted[i - 1], &own = sorted[i];
    const bool same = before.range.offset == own.range.offset && before.end() == own.end();
    if (!same && before.end() > own.range.offset) {
      return unsupported(own.item->place + ": versions patch it in different boxes");
    }
  }
  return slabs;
}

}  // namespace

std::string part_file_name(std::string object) {
  std::replace(object.begin(), object.end(), '/', '_');
  return object;
}

std::shared_ptr<const MadeBytes> made_from(std::shared_ptr<const MadeBytes> made, uint64_t begin,
                                           uint64_t size) {
  return std::make_shared<MadeFrom>(std::move(made), begin, size);
}

SnapshotLog::SnapshotLog(VersionRecord base, std::shared_ptr<Store> store, fs::path parts,
                         Limits limits)
    : last_(std::move(base)), store_(std::move(store)), parts_(std::move(parts)), limits_(limits) {}

Result<std::vector<PartFile>> SnapshotLog::fetch_parts(const Manifest& manifest) {
  const fs::path local = store_->local_folder();
  std::vector<PartFile> files;
  std::vector<FetchItem> missing;
  for (const PartRef& part : manifest.parts) {
    const std::string kept = part_file_name(part.name);
    part_files_.insert(kept);
    files.push_back({parts_ / kept, store_->url() + "/" + part.name});
    if (is_part(parts_ / kept, part)) continue;
    if (!local.empty() && is_part(local / part.name, part)) {
      files.back().path = local / part.name;
      continue;
    }
    DW_RETURN_IF_ERROR(remove_tree(parts_ / kept));
    missing.push_back({part, parts_ / kept});
  }
  if (missing.empty()) return files;
  DW_RETURN_IF_ERROR(make_folder(parts_));
  DW_RETURN_IF_ERROR(Fetch(*store_, std::move(missing)).finish({}));
  return files;
}

Status SnapshotLog::add(const VersionRecord& next) {
  const Manifest& manifest = next.manifest;
  const uint64_t version = manifest.version;
  if (manifest.kind != VersionKind::kDelta) return cannot_log(version, "it is stored whole");
  if (version != last_.manifest.version + 1 || manifest.parent != last_.digest) {
    return cannot_log(version, "it does not follow the one before");
  }
  if (manifest.schema.name != last_.manifest.schema.name) {
    return cannot_log(version, "its tensors are others");
  }
  bytes_ += manifest.part_bytes();
  if (deltas_.size() == limits_.versions || bytes_ > limits_.bytes) {
    return cannot_log(version, "the log is long enough");
  }
  DW_ASSIGN_OR_RETURN(const std::vector<PartFile> files, fetch_parts(manifest));
  DW_ASSIGN_OR_RETURN(Delta delta, open_delta_parts(files));
  for (const Delta::Entry& item : delta.entries) {
    num_changed_[item.entry.tensor] += item.entry.num_changed;
  }
  deltas_.push_back(std::move(delta));
  last_ = next;
  return {};
}

Status SnapshotLog::join(const Checkpoint& held, const Schema& schema) {
  tensors_.clear();
  DW_ASSIGN_OR_RETURN(const std::vector<TensorSteps> all, collect_steps(held, deltas_, schema));
  for (const TensorSteps& steps : all) {
    if (steps.entries.empty()) continue;
    const std::string& name = schema.tensors[steps.index].name;
    if (steps.from == nullptr || boxes_hashed(last_.manifest, name) != nullptr) {
      return cannot_log(last_.manifest.version, "tensor " + quote(name) + " is new, or in boxes");
    }
    DW_ASSIGN_OR_RETURN(std::vector<LoggedSlab> slabs, slabs_of(steps, limits_.slab_bytes));
    tensors_[name] = std::make_shared<LoggedTensor>(steps.from->view, std::move(slabs));
  }
  return {};
}

uint64_t SnapshotLog::num_changed(const std::string& tensor) const {
  const auto found = num_changed_.find(tensor);
  return found == num_changed_.end() ? 0 : found->second;
}

std::shared_ptr<const MadeBytes> SnapshotLog::find(const std::string& tensor) const {
  const auto found = tensors_.find(tensor);
  return found == tensors_.end() ? nullptr : found->second;
}

}  // namespace deltawire
