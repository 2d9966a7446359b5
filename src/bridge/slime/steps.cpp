#include "bridge/slime/steps.h"

#include <algorithm>
#include <map>
#include <memory>

#include "base/file.h"
#include "base/folder.h"
#include "base/guard.h"
#include "base/sync_point.h"
#include "base/waves.h"
#include "digest/parallel.h"
#include "format/checkpoint_files.h"
#include "replica/journal_redo.h"
#include "replica/local_file.h"
#include "tensor/sharded_index.h"
#include "tensor/text.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

constexpr uint64_t kSlimeRedoSlabBytes = uint64_t{64} << 20;
constexpr uint64_t kSlimeRedoMemoryBytes = uint64_t{256} << 20;

TensorSpec spec_of(const CheckpointTensor& tensor) {
  return {tensor.view.name, tensor.view.dtype, tensor.view.shape};
}

size_t index_of(const Checkpoint& held, const CheckpointTensor* tensor) {
  return size_t(tensor - held.tensors().data());
}

// Whether a tensor that the checkpoint lacks has the bytes of one that it has, after this version:
// what shares its contents need not be there twice. 32 bits of adler32 are not enough to say so.
bool is_tied(const Checkpoint& held, const ForeignInfo& info, const ForeignTensor& absent) {
  if (!absent.checksum || absent.checksum->kind == ChecksumKind::kAdler32) return false;
  return std::any_of(info.tensors.begin(), info.tensors.end(), [&](const ForeignTensor& other) {
    return other.name != absent.name && other.checksum == absent.checksum &&
           held.find(other.name) != nullptr;
  });
}

Status apply_changes(const TensorSpec& spec, std::span<const SlimeVersion> versions,
                     const TouchedTensor& touched, MutableBytes bytes, ThreadPool* pool) {
  for (const auto& [version, index] : touched.changes) {
    DW_RETURN_IF_ERROR(versions[version].files->apply(index, spec, bytes, pool));
  }
  return {};
}

Status check_sources(const Checkpoint& held, std::span<const SlimeVersion> versions) {
  DW_RETURN_IF_ERROR(held.check_unchanged());
  for (const SlimeVersion& version : versions) {
    DW_RETURN_IF_ERROR(version.files->check_unchanged());
  }
  return {};
}

Status check_work(const SlimeWork& work) { return work.check ? work.check() : Status(); }

// The files beside the weights that a checkpoint's folder brings along.
Result<std::vector<std::string>> side_names(const fs::path& folder) {
  std::vector<std::string> names;
  std::error_code error;
  for (fs::directory_iterator it(folder, error), end; !error && it != end; it.increment(error)) {
    const std::string name = it->path().filename().string();
    std::error_code ignored;
    if (!is_weights_file(name) && it->is_regular_file(ignored) &&
        check_checkpoint_file_name(name).ok()) {
      names.push_back(name);
    }
  }
  if (error) return io_error(folder.string() + ": cannot list: " + error.message());
  std::sort(names.begin(), names.end());
  return names;
}

Status copy_slime_sides(const fs::path& from, const fs::path& to, std::vector<std::string>* names) {
  DW_ASSIGN_OR_RETURN(const std::vector<std::string> sides, side_names(from));
  for (const std::string& name : sides) {
    DW_RETURN_IF_ERROR(clone_file(from / name, to / name));
    DW_RETURN_IF_ERROR(sync_file(to / name));
    names->push_back(name);
  }
  return {};
}

Result<std::vector<MutableFile>> create_files_like(const Checkpoint& held, const fs::path& folder) {
  std::vector<MutableFile> files;
  files.reserve(held.files().size());
  for (const CheckpointFile& file : held.files()) {
    DW_ASSIGN_OR_RETURN(MutableFile made,
                        MutableFile::create(folder / file.name, file.bytes.size()));
    std::copy(file.header.begin(), file.header.end(), made.bytes().begin());
    files.push_back(std::move(made));
  }
  return files;
}

}  // namespace

Result<std::vector<TouchedTensor>> touched_tensors(const Checkpoint& held,
                                                   std::span<const SlimeVersion> versions,
                                                   size_t* num_tied) {
  std::map<size_t, TouchedTensor> touched;
  for (size_t v = 0; v < versions.size(); ++v) {
    const ForeignInfo& info = versions[v].info();
    for (size_t i = 0; i < info.tensors.size(); ++i) {
      const CheckpointTensor* const found = held.find(info.tensors[i].name);
      if (found == nullptr) {
        if (!is_tied(held, info, info.tensors[i])) {
          return base_mismatch(versions[v].folder.string() + ": changes tensor " +
                               quote(info.tensors[i].name) + ", which " + held.path().string() +
                               " does not have; is it the checkpoint that training began with?");
        }
        ++*num_tied;
        continue;
      }
      const size_t index = index_of(held, found);
      touched[index].tensor = index;
      touched[index].changes.emplace_back(v, i);
    }
  }
  std::vector<TouchedTensor> list;
  for (auto& [index, tensor] : touched) list.push_back(std::move(tensor));
  return list;
}

Status prove_slime_version(const Checkpoint& held, const SlimeVersion& version,
                           const SlimeWork& work) {
  size_t num_tied = 0;
  DW_ASSIGN_OR_RETURN(const auto touched, touched_tensors(held, std::span(&version, 1), &num_tied));
  return parallel_try("comparing", work.pool, touched.size(), [&](size_t i, unsigned) -> Status {
    DW_RETURN_IF_ERROR(check_work(work));
    const CheckpointTensor& tensor = held.tensors()[touched[i].tensor];
    const ForeignTensor& told = version.info().tensors[touched[i].changes[0].second];
    if (!told.checksum) return {};
    const Checksum own = checksum_of(told.checksum->kind, tensor.view.bytes);
    if (own == *told.checksum) return {};
    return base_mismatch(held.path().string() + ", tensor " + quote(told.name) + ": " +
                         std::string(checksum_name(own.kind)) + " is " + own.hex + ", but " +
                         version.folder.string() + " left " + told.checksum->hex);
  });
}

Result<std::vector<std::string>> write_slime_redo(const Checkpoint& held,
                                                  std::span<const SlimeVersion> versions,
                                                  std::span<const TouchedTensor> touched,
                                                  const fs::path& folder, const SlimeWork& work) {
  DW_RETURN_IF_ERROR(make_folder(folder));
  DeltaInfo info;  // of a record that nothing but its own journal refers to
  info.base = digest_of(DigestKind::kXxh3_128, {});
  RedoWriter redo(folder, info, kSlimeRedoMemoryBytes);
  std::vector<uint64_t> sizes;
  for (const TouchedTensor& tensor : touched) {
    sizes.push_back(held.tensors()[tensor.tensor].view.bytes.size());
  }
  std::vector<std::vector<RedoEntry>> entries(touched.size());
  const auto decode = [&](size_t i, ThreadPool* inner) -> Status {
    DW_RETURN_IF_ERROR(check_work(work));
    const CheckpointTensor& tensor = held.tensors()[touched[i].tensor];
    const auto copy = std::make_unique_for_overwrite<uint8_t[]>(sizes[i]);
    const MutableBytes bytes(copy.get(), sizes[i]);
    std::copy(tensor.view.bytes.begin(), tensor.view.bytes.end(), bytes.begin());
    DW_RETURN_IF_ERROR(apply_changes(spec_of(tensor), versions, touched[i], bytes, inner));
    return make_redo_entries(tensor.view, bytes, kSlimeRedoSlabBytes, inner, [&](RedoEntry entry) {
      entries[i].push_back(std::move(entry));
      return Status();
    });
  };
  const auto add = [&](size_t i) -> Status {
    for (RedoEntry& entry : entries[i]) DW_RETURN_IF_ERROR(redo.add(std::move(entry)));
    entries[i].clear();
    return {};
  };
  DW_RETURN_IF_ERROR(
      Waves(sizes, Waves::Inside::kShared, work.pool, {}, work.chunk_bytes).run(decode, add));
  DW_ASSIGN_OR_RETURN(std::vector<std::string> names, redo.finish());
  DW_RETURN_IF_ERROR(check_sources(held, versions));
  DW_RETURN_IF_ERROR(sync_directory(folder));
  return names;
}

Result<std::vector<std::string>> write_slime_files(const fs::path& from,
                                                   std::span<const SlimeVersion> versions,
                                                   bool with_sides, const fs::path& folder,
                                                   const SlimeWork& work) {
  DW_ASSIGN_OR_RETURN(const Checkpoint held, Checkpoint::open(from));
  size_t num_tied = 0;
  DW_ASSIGN_OR_RETURN(const auto touched, touched_tensors(held, versions, &num_tied));
  DW_RETURN_IF_ERROR(make_folder(folder));
  std::vector<const TouchedTensor*> changes(held.tensors().size());
  for (const TouchedTensor& tensor : touched) changes[tensor.tensor] = &tensor;
  DW_ASSIGN_OR_RETURN(std::vector<MutableFile> files, create_files_like(held, folder));
  std::vector<uint64_t> sizes;
  for (const CheckpointTensor& tensor : held.tensors()) sizes.push_back(tensor.view.bytes.size());
  const auto build = [&](size_t i, ThreadPool* inner) -> Status {
    DW_RETURN_IF_ERROR(check_work(work));
    const CheckpointTensor& tensor = held.tensors()[i];
    const MutableBytes bytes = files[tensor.file].bytes().subspan(tensor.offset, sizes[i]);
    std::copy(tensor.view.bytes.begin(), tensor.view.bytes.end(), bytes.begin());
    return changes[i] == nullptr
               ? Status()
               : apply_changes(spec_of(tensor), versions, *changes[i], bytes, inner);
  };
  DW_RETURN_IF_ERROR(
      Waves(sizes, Waves::Inside::kShared, work.pool, {}, work.chunk_bytes).run(build));
  DW_RETURN_IF_ERROR(check_sources(held, versions));
  const auto poll = [&] { return check_work(work); };
  for (MutableFile& file : files) DW_RETURN_IF_ERROR(file.commit(poll));
  DW_SYNC_POINT("slime: new files on disk");
  std::vector<std::string> names;
  for (const CheckpointFile& file : held.files()) names.push_back(file.name);
  if (held.has_index()) {
    DW_RETURN_IF_ERROR(write_text_file(folder / kIndexFileName, held.index_text()));
    names.emplace_back(kIndexFileName);
  }
  if (with_sides) DW_RETURN_IF_ERROR(copy_slime_sides(from, folder, &names));
  DW_RETURN_IF_ERROR(sync_directory(folder));
  return names;
}

}  // namespace deltawire
