#include "deltawire/checkpoint.h"

#include <algorithm>
#include <optional>
#include <system_error>

#include "base/file.h"
#include "base/folder.h"
#include "base/text.h"
#include "tensor/defects.h"
#include "tensor/form.h"
#include "tensor/safetensors.h"
#include "tensor/sharded_index.h"
#include "tensor/text.h"

namespace deltawire {

namespace fs = std::filesystem;

struct Checkpoint::Impl {
  fs::path path;
  bool has_index = false;
  std::string index_text;
  std::vector<std::shared_ptr<MappedFile>> mappings;  // what the spans of `files` point into
  std::vector<CheckpointFile> files;
  std::vector<CheckpointTensor> tensors;
  uint64_t data_bytes = 0;

  Status add_file(const fs::path& file_path);
  Status sort_tensors();
  Status check_index(const std::vector<IndexEntry>& entries) const;
  Status open_index(const fs::path& index_path);
};

namespace {

Status fs_error(const fs::path& path, std::string_view what, const std::error_code& error) {
  return io_error(path.string() + ": " + std::string(what) + ": " + error.message());
}

// The folder's one safetensors file.
Result<fs::path> only_file_in(const fs::path& folder) {
  std::error_code error;
  std::vector<fs::path> found;
  std::string pickled;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string extension = it->path().extension().string();
    if (extension == ".safetensors") found.push_back(it->path());
    if (extension == ".bin" || extension == ".pt" || extension == ".pth") {
      pickled = it->path().filename().string();
    }
  }
  if (error) return fs_error(folder, "cannot list", error);
  if (found.empty() && looks_like_store(folder)) {
    return invalid_argument(folder.string() + ": is a store, not a checkpoint");
  }
  if (found.empty() && !pickled.empty()) {
    return unsupported(folder.string() + ": holds " + pickled +
                       ", as torch.save writes it, and no " + ".safetensors file");
  }
  if (found.empty()) {
    return not_found(folder.string() + ": no " + std::string(kIndexFileName) +
                     " and no .safetensors file");
  }
  if (found.size() > 1) {
    return invalid_argument(folder.string() + ": " + std::to_string(found.size()) +
                            " .safetensors files and no " + std::string(kIndexFileName) +
                            " to say which belong together");
  }
  return found.front();
}

bool by_name(const CheckpointTensor& a, const CheckpointTensor& b) {
  return a.view.name < b.view.name;
}

}  // namespace

Status Checkpoint::Impl::add_file(const fs::path& file_path) {
  DW_ASSIGN_OR_RETURN(auto mapping, MappedFile::open_large(file_path));
  const Bytes bytes = mapping->bytes();
  std::string header;
  auto parsed = parse_safetensors(bytes, &header);
  DW_RETURN_IF_ERROR(mapping->check_whole());
  if (!parsed.ok()) return std::move(parsed).status().at(file_path.string());
  const size_t index = files.size();
  for (TensorView& view : parsed->tensors) {
    const auto offset = uint64_t(view.bytes.data() - bytes.data());
    data_bytes += view.bytes.size();
    tensors.push_back({std::move(view), index, offset});
  }
  files.push_back({file_path.filename().string(),
                   file_path,
                   bytes,
                   parsed->data_offset,
                   std::move(header),
                   std::move(parsed->metadata),
                   {}});
  mappings.push_back(std::move(mapping));
  return {};
}

Status Checkpoint::Impl::sort_tensors() {
  std::sort(tensors.begin(), tensors.end(), by_name);
  for (size_t i = 0; i < tensors.size(); ++i) {
    const CheckpointTensor& tensor = tensors[i];
    if (i > 0 && tensors[i - 1].view.name == tensor.view.name) {
      return corruption(path.string() + ": tensor " + quote(tensor.view.name) + ": " +
                        std::string(defect::kTensorTwice) + ": " +
                        quote(files[tensors[i - 1].file].name) + " and " +
                        quote(files[tensor.file].name));
    }
    files[tensor.file].tensors.push_back(i);
  }
  for (CheckpointFile& file : files) {
    std::stable_sort(file.tensors.begin(), file.tensors.end(), [&](size_t a, size_t b) {
      return std::pair(tensors[a].offset, tensors[a].view.bytes.size()) <
             std::pair(tensors[b].offset, tensors[b].view.bytes.size());
    });
  }
  return {};
}

// Both lists are sorted by tensor and free of duplicates: walk them side by side.
Status Checkpoint::Impl::check_index(const std::vector<IndexEntry>& entries) const {
  size_t e = 0, t = 0;
  while (e < entries.size() || t < tensors.size()) {
    const bool mapped =
        e < entries.size() && (t == tensors.size() || entries[e].tensor <= tensors[t].view.name);
    if (!mapped) {
      return corruption("tensor " + quote(tensors[t].view.name) + " of " +
                        quote(files[tensors[t].file].name) + ": " +
                        std::string(defect::kTensorUnmapped));
    }
    const bool present = t < tensors.size() && tensors[t].view.name == entries[e].tensor;
    if (!present || files[tensors[t].file].name != entries[e].file) {
      return corruption("tensor " + quote(entries[e].tensor) + ": " +
                        std::string(defect::kTensorMissing) + ": expected in " +
                        quote(entries[e].file) + ", " +
                        (present ? "found in " + quote(files[tensors[t].file].name)
                                 : std::string("found nowhere")));
    }
    ++e;
    ++t;
  }
  return {};
}

Status Checkpoint::Impl::open_index(const fs::path& index_path) {
  DW_ASSIGN_OR_RETURN(index_text, read_text_file(index_path, kMaxIndexBytes));
  DW_ASSIGN_OR_RETURN(auto entries, located(parse_index(index_text), index_path.string()));
  std::vector<std::string> names;
  for (const IndexEntry& entry : entries) names.push_back(entry.file);
  std::sort(names.begin(), names.end());
  names.erase(std::unique(names.begin(), names.end()), names.end());
  for (const std::string& name : names) {
    const fs::path shard = index_path.parent_path() / name;
    Status status = add_file(shard);
    if (status.code() == Code::kNotFound) {
      return not_found(shard.string() + ": " + std::string(defect::kShardMissing));
    }
    DW_RETURN_IF_ERROR(std::move(status));
  }
  DW_RETURN_IF_ERROR(sort_tensors());
  has_index = true;
  return check_index(entries).at(index_path.string());
}

Checkpoint::Checkpoint(std::shared_ptr<const Impl> impl) : impl_(std::move(impl)) {}

Result<Checkpoint> Checkpoint::open(const fs::path& path) {
  auto impl = std::make_shared<Impl>();
  impl->path = path;
  std::error_code error;
  const fs::file_status info = fs::status(path, error);
  if (info.type() == fs::file_type::not_found && looks_like_store(path)) {
    return invalid_argument(path.string() + ": is a store, not a checkpoint");
  }
  if (info.type() == fs::file_type::not_found) {
    return not_found(path.string() + ": no such file or folder");
  }
  if (error) return fs_error(path, "cannot stat", error);
  fs::path file = path;
  if (fs::is_directory(info)) {
    const fs::path index_path = path / kIndexFileName;
    if (fs::exists(index_path, error)) {
      DW_RETURN_IF_ERROR(impl->open_index(index_path));
      return Checkpoint(std::move(impl));
    }
    if (error) return fs_error(index_path, "cannot stat", error);
    DW_ASSIGN_OR_RETURN(file, only_file_in(path));
  }
  DW_RETURN_IF_ERROR(impl->add_file(file));
  DW_RETURN_IF_ERROR(impl->sort_tensors());
  return Checkpoint(std::move(impl));
}

const fs::path& Checkpoint::path() const noexcept { return impl_->path; }
bool Checkpoint::has_index() const noexcept { return impl_->has_index; }
std::span<const CheckpointFile> Checkpoint::files() const noexcept { return impl_->files; }
std::span<const CheckpointTensor> Checkpoint::tensors() const noexcept { return impl_->tensors; }
uint64_t Checkpoint::data_bytes() const noexcept { return impl_->data_bytes; }
const std::string& Checkpoint::index_text() const noexcept { return impl_->index_text; }

Status Checkpoint::check_whole() const {
  for (const auto& mapping : impl_->mappings) DW_RETURN_IF_ERROR(mapping->check_whole());
  return {};
}

Status Checkpoint::check_unchanged() const {
  for (const auto& mapping : impl_->mappings) DW_RETURN_IF_ERROR(mapping->check_unchanged());
  return {};
}

const CheckpointTensor* Checkpoint::find(std::string_view name) const noexcept {
  return find_tensor(std::as_const(impl_->tensors), name);
}

}  // namespace deltawire
