#include "publish/side_files.h"

#include <algorithm>
#include <map>

#include "base/bytes.h"
#include "base/sync_point.h"
#include "chain/named_objects.h"
#include "chain/names.h"
#include "format/checkpoint_files.h"
#include "store/bodies.h"
#include "tensor/sharded_index.h"
#include "tensor/text.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

constexpr unsigned kUploadsAtOnce = 4;

bool is_other_weights(const fs::path& path) {
  static constexpr std::string_view kExtensions[] = {
      ".safetensors", ".bin", ".pt", ".pth", ".ckpt", ".gguf", ".h5", ".msgpack", ".onnx", ".npz"};
  const std::string extension = path.extension().string();
  return std::find(std::begin(kExtensions), std::end(kExtensions), extension) !=
         std::end(kExtensions);
}

// An object of the store, read where it is.
class ObjectBody final : public Body {
 public:
  ObjectBody(std::shared_ptr<Store> store, PartRef object)
      : store_(std::move(store)), object_(std::move(object)) {}
  uint64_t size() const noexcept override { return object_.size_bytes; }
  Status read(uint64_t offset, MutableBytes out) const override {
    return out.empty() ? Status() : store_->read(object_.name, offset, out);
  }

 private:
  const std::shared_ptr<Store> store_;
  const PartRef object_;
};

const SideFile* find_contents(const Manifest* parent, const SideFile& wanted) {
  if (parent == nullptr) return nullptr;
  for (const SideFile& file : parent->files) {
    if (file.sha256 == wanted.sha256 && file.size_bytes == wanted.size_bytes) return &file;
  }
  return nullptr;
}

Status changed_meanwhile(const fs::path& path) {
  return invalid_argument(path.string() +
                          ": was changed while it was published; nothing was committed, publish "
                          "again");
}

}  // namespace

Result<FolderFiles> files_beside(const Checkpoint& checkpoint) {
  FolderFiles found;
  const fs::path& folder = checkpoint.path();
  std::error_code error;
  if (!fs::is_directory(folder, error)) return found;
  std::vector<std::string> weights = {std::string(kIndexFileName)};
  for (const CheckpointFile& file : checkpoint.files()) weights.push_back(file.name);
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    if (std::find(weights.begin(), weights.end(), name) != weights.end()) continue;
    std::error_code unknown;
    if (name[0] == '.' || !it->is_regular_file(unknown) || is_other_weights(it->path())) {
      found.left_out.push_back(it->is_directory(unknown) ? name + "/" : name);
    } else {
      found.files.push_back(it->path());
    }
  }
  if (error) return io_error(folder.string() + ": cannot list: " + error.message());
  std::sort(found.files.begin(), found.files.end());
  std::sort(found.left_out.begin(), found.left_out.end());
  return found;
}

std::string left_out_note(const std::vector<std::string>& names) {
  constexpr size_t kNamed = 5;
  if (names.empty()) return {};
  std::string list;
  for (size_t i = 0; i < std::min(kNamed, names.size()); ++i) {
    list.append(list.empty() ? "" : ", ").append(escape_controls(names[i]));
  }
  if (names.size() > kNamed) list += " and " + std::to_string(names.size() - kNamed) + " more";
  return "left out: " + list +
         ": folders, hidden files and weights in other formats are not published";
}

Status SideFiles::check(const SidePaths& paths) {
  std::vector<NamedSize> sizes;
  for (const fs::path& path : paths) {
    const std::string name = path.filename().string();
    DW_RETURN_IF_ERROR(as_invalid_argument(check_checkpoint_file_name(name)).at(path.string()));
    std::error_code error;
    const bool regular = fs::is_regular_file(path, error);
    if (!error && !regular) return invalid_argument(path.string() + ": not a regular file");
    const uint64_t size = error ? 0 : fs::file_size(path, error);
    if (error) return io_error(path.string() + ": cannot read: " + error.message());
    sizes.push_back({name, size});
  }
  for (const NamedSize& file : sizes) {
    if (!is_packed_file(file.name)) continue;
    return invalid_argument("file " + quote(file.name) + ": packed weights have such names");
  }
  Status status = as_invalid_argument(check_side_files(sizes));
  return paths.empty() ? status : std::move(status).at(paths[0].parent_path().string());
}

Result<std::unique_ptr<SideFiles>> SideFiles::gather(const std::optional<SidePaths>& paths,
                                                     const Manifest* parent,
                                                     std::shared_ptr<Store> store) {
  std::unique_ptr<SideFiles> sides(new SideFiles(std::move(store)));
  if (!paths) {
    if (parent != nullptr) sides->list_ = parent->files;
    for (const SideFile& file : sides->list_) {
      sides->contents_.push_back(
          {{}, std::make_shared<ObjectBody>(sides->store_, side_object(file)), false});
    }
    return sides;
  }
  SidePaths sorted = *paths;
  std::sort(sorted.begin(), sorted.end(), [](const fs::path& a, const fs::path& b) {
    return a.filename().string() < b.filename().string();
  });
  DW_RETURN_IF_ERROR(check(sorted));
  for (const fs::path& path : sorted) DW_RETURN_IF_ERROR(sides->add(path, parent));
  sides->changed_ = parent == nullptr ? !sides->list_.empty() : sides->list_ != parent->files;
  return sides;
}

Status SideFiles::add(const fs::path& path, const Manifest* parent) {
  DW_ASSIGN_OR_RETURN(const std::shared_ptr<MappedFile> mapped, MappedFile::open(path));
  // Read twice: to know its name in the store, and to put it.
  Content content{path, std::make_shared<StableBody>(file_body(mapped), path.string()), false};
  SideFile file{path.filename().string(), content.body->size(), {}, {}};
  DW_ASSIGN_OR_RETURN(file.sha256, digest_of_body(DigestKind::kSha256, *content.body));
  // Only what the parent names is sure to stay: what it does not name may be on its way out.
  const SideFile* const there = find_contents(parent, file);
  content.is_new = there == nullptr;
  if (there != nullptr) file.attempt = there->attempt;
  list_.push_back(std::move(file));
  contents_.push_back(std::move(content));
  return {};
}

SideFiles::~SideFiles() {
  if (!kept_) abandon();
}

Status SideFiles::put_one(size_t file, const std::atomic<bool>& stop) const {
  const StoppableBody stoppable(*contents_[file].body, stop);
  HashingBody hashing(stoppable);
  DW_SYNC_POINT("side file: before put");
  DW_RETURN_IF_ERROR(store_->put(side_object(list_[file]).name, hashing));
  DW_SYNC_POINT("side file: after put");
  DW_ASSIGN_OR_RETURN(const Digest got, hashing.sha256());
  return got == list_[file].sha256 ? Status() : changed_meanwhile(contents_[file].path);
}

Status SideFiles::put(uint64_t version, const UploadQueue::KeepGoing& keep_going) {
  if (std::none_of(contents_.begin(), contents_.end(),
                   [](const Content& one) { return one.is_new; })) {
    return {};
  }
  const std::string attempt = side_attempt(version, random_hex(kAttemptDigits));
  UploadQueue queue("uploading", kUploadsAtOnce, UINT64_MAX, {}, keep_going);
  for (size_t i = 0; i < list_.size(); ++i) {
    if (!contents_[i].is_new) continue;
    list_[i].attempt = attempt;
    std::string object = side_object(list_[i]).name;
    // Two files with the same bytes are one object.
    if (std::find(put_.begin(), put_.end(), object) != put_.end()) continue;
    put_.push_back(std::move(object));
  }
  for (size_t i = 0; i < list_.size(); ++i) {
    const bool first =
        contents_[i].is_new &&
        std::none_of(list_.begin(), list_.begin() + ptrdiff_t(i),
                     [&](const SideFile& one) { return one.sha256 == list_[i].sha256; });
    if (!first) continue;
    // Cannot fail: nothing limits what waits. A failure of a job shows in finish().
    (void)queue.push(0, [this, i, stop = &queue.stopping()] { return put_one(i, *stop); });
  }
  return queue.finish();
}

void SideFiles::abandon() {
  for (const std::string& object : put_) (void)store_->remove(object);
  put_.clear();
}

std::vector<FullFile> SideFiles::copies() const {
  std::vector<FullFile> copies;
  for (size_t i = 0; i < list_.size(); ++i) {
    if (check_object_name(list_[i].name).ok()) copies.push_back({list_[i].name, contents_[i].body});
  }
  return copies;
}

Status SideFiles::check_copies(const std::vector<PartRef>& parts) const {
  for (const PartRef& part : parts) {
    const std::string name = part.name.substr(part.name.rfind('/') + 1);
    for (size_t i = 0; i < list_.size(); ++i) {
      if (list_[i].name != name || part.sha256 == list_[i].sha256) continue;
      if (!contents_[i].path.empty()) return changed_meanwhile(contents_[i].path);
      return corruption(store_->url() + "/" + side_object(list_[i]).name + ": sha-256: expected " +
                        list_[i].sha256.hex() + ", got " + part.sha256.hex());
    }
  }
  return {};
}

std::vector<FullFile> SideFiles::new_objects() const {
  std::vector<FullFile> objects;
  for (size_t i = 0; i < list_.size(); ++i) {
    if (contents_[i].is_new) objects.push_back({side_object(list_[i]).name, contents_[i].body});
  }
  return objects;
}

}  // namespace deltawire
