// From a checkpoint and a delta to the next checkpoint.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/thread_pool.h"
#include "codec/codec.h"
#include "deltawire/checkpoint.h"
#include "deltawire/delta.h"
#include "format/layout.h"
#include "sync/base_check.h"
#include "sync/delta_reader.h"
#include "sync/temporary_folder.h"
#include "sync/waves.h"
#include "tensor/safetensors.h"
#include "tensor/sharded_index.h"
#include "tensor/text.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

// One file of the result: its header, and where each tensor's bytes come from and go to.
struct OutTensor {
  TensorSpec spec;
  const CheckpointTensor* from = nullptr;    // null: comes with the delta
  std::vector<const Delta::Entry*> entries;  // what patches or brings it
  uint64_t offset = 0, size = 0;             // in the new file
};

struct OutFile {
  std::string name;
  std::string header;
  std::vector<OutTensor> tensors;
  uint64_t size = 0;
  const CheckpointFile* copy_of = nullptr;  // same layout: bytes between tensors are the same too
};

struct Plan {
  std::vector<OutFile> files;
  bool relaid = false;  // tensors came, went or changed their form
};

using EntriesByTensor = std::map<std::string, std::vector<const Delta::Entry*>, std::less<>>;

bool brings_tensor(const std::vector<const Delta::Entry*>& entries) {
  return !entries.empty() && !entries[0]->entry.old_digest;
}

Status lay_out(OutFile* file, const Metadata& metadata) {
  std::vector<TensorSpec> specs;
  for (const OutTensor& tensor : file->tensors) specs.push_back(tensor.spec);
  DW_ASSIGN_OR_RETURN(file->header, serialise_safetensors_header(specs, metadata));
  file->size = file->header.size();
  for (OutTensor& tensor : file->tensors) {
    DW_ASSIGN_OR_RETURN(tensor.size, tensor_size_bytes(tensor.spec.dtype, tensor.spec.shape));
    tensor.offset = file->size;
    file->size += tensor.size;
  }
  return {};
}

Result<Plan> make_plan(const Checkpoint& base, const Delta& delta) {
  EntriesByTensor entries;
  for (const Delta::Entry& item : delta.entries) entries[item.entry.tensor].push_back(&item);
  Plan plan;
  for (const CheckpointFile& file : base.files()) {
    OutFile out;
    out.name = file.name;
    bool relaid = false;
    for (const size_t index : file.tensors) {
      const CheckpointTensor& tensor = base.tensors()[index];
      const TensorView& view = tensor.view;
      const auto& removed = delta.info.removed;
      if (std::find(removed.begin(), removed.end(), view.name) != removed.end()) {
        relaid = true;
        continue;
      }
      OutTensor target{
          {view.name, view.dtype, view.shape}, &tensor, {}, tensor.offset, view.bytes.size()};
      if (const auto found = entries.find(view.name); found != entries.end()) {
        target.entries = std::move(found->second);
        entries.erase(found);
        if (brings_tensor(target.entries)) {
          target.from = nullptr;
          target.spec.dtype = target.entries[0]->entry.dtype;
          target.spec.shape = target.entries[0]->entry.shape;
          relaid = true;
        }
      }
      out.tensors.push_back(std::move(target));
    }
    const bool last = &file == &base.files().back();
    if (last) {  // tensors that are new go to the end of the last file
      for (auto& [name, items] : entries) {
        const DeltaEntry& entry = items[0]->entry;
        out.tensors.push_back({{name, entry.dtype, entry.shape}, nullptr, std::move(items), 0, 0});
        relaid = true;
      }
    }
    if (relaid) {
      DW_RETURN_IF_ERROR(lay_out(&out, file.metadata));
      plan.relaid = true;
    } else {
      out.copy_of = &file;
      out.size = file.bytes.size();
      out.header.assign(reinterpret_cast<const char*>(file.bytes.data()), file.header_bytes);
    }
    plan.files.push_back(std::move(out));
  }
  return plan;
}

// Brings one tensor to its new state in the output's memory and proves it.
Status build_tensor(const OutTensor& tensor, MutableBytes out, ThreadPool* pool) {
  if (tensor.from != nullptr) {
    std::copy(tensor.from->view.bytes.begin(), tensor.from->view.bytes.end(), out.begin());
  }
  for (const Delta::Entry* item : tensor.entries) {
    const DeltaEntry& entry = item->entry;
    const Codec& codec = *find_codec(entry.codec);
    const Layout layout = layout_of(entry.dtype);
    std::vector<uint8_t> boxed;
    MutableBytes contents = out;
    if (!entry.box.whole()) {
      boxed.resize(entry.box_bytes());
      copy_box_out(entry.box, entry.dtype, entry.shape, out, boxed);
      contents = boxed;
    }
    Digest got;
    if (pool == nullptr) {
      Hasher hasher(entry.new_digest.kind);
      DW_RETURN_IF_ERROR(
          codec.apply_followed(layout, item->payload, contents, &hasher).at(item->place));
      got = hasher.finish();
    } else {
      DW_RETURN_IF_ERROR(codec.apply(layout, item->payload, contents, pool).at(item->place));
      got = digest_of(entry.new_digest.kind, contents);
    }
    if (got != entry.new_digest) {
      return corruption(item->place + ": " + std::string(digest_name(got.kind)) +
                        " after the patch: expected " + entry.new_digest.hex() + ", got " +
                        got.hex());
    }
    if (!entry.box.whole()) copy_box_in(entry.box, entry.dtype, entry.shape, boxed, out);
  }
  return {};
}

Status build_file(const OutFile& file, MutableFile* out, ThreadPool* pool,
                  const Progress& progress) {
  const MutableBytes bytes = out->bytes();
  std::copy(file.header.begin(), file.header.end(), bytes.begin());
  std::vector<uint64_t> sizes;
  for (const OutTensor& tensor : file.tensors) sizes.push_back(tensor.size);
  return Waves(std::move(sizes), Waves::Inside::kShared, pool, progress)
      .run(
          [&](size_t i, ThreadPool* inner) {
            const OutTensor& tensor = file.tensors[i];
            return build_tensor(tensor, bytes.subspan(tensor.offset, tensor.size), inner);
          },
          [](size_t) { return Status(); });
}

// The state the plan leads to, from digests that are all proven by now.
Digest planned_state(const Checkpoint& base, const std::vector<TensorState>& before,
                     const Plan& plan, DigestKind kind,
                     const std::function<Bytes(const OutFile&, const OutTensor&)>& bytes_of) {
  std::vector<TensorState> after;
  for (const OutFile& file : plan.files) {
    for (const OutTensor& tensor : file.tensors) {
      TensorState state{tensor.spec.name, tensor.spec.dtype, tensor.spec.shape, {}};
      if (tensor.entries.empty()) {
        state.digest = before[size_t(tensor.from - base.tensors().data())].digest;
      } else if (tensor.entries[0]->entry.box.whole()) {
        state.digest = tensor.entries[0]->entry.new_digest;
      } else {
        state.digest = digest_of(kind, bytes_of(file, tensor));
      }
      after.push_back(std::move(state));
    }
  }
  return state_digest(std::move(after));
}

// Everything of the base's folder that is not weights: configuration, tokenizer.
Status copy_companions(const Checkpoint& base, const Plan& plan, const fs::path& folder) {
  std::error_code error;
  for (const auto& item : fs::directory_iterator(base.path(), error)) {
    const std::string name = item.path().filename().string();
    const auto files = base.files();
    const bool weights = std::any_of(files.begin(), files.end(),
                                     [&](const CheckpointFile& file) { return file.name == name; });
    if (weights || !item.is_regular_file(error) || (plan.relaid && name == kIndexFileName))
      continue;
    fs::copy_file(item.path(), folder / name, error);
    if (error) return io_error((folder / name).string() + ": cannot copy: " + error.message());
  }
  if (error) return io_error(base.path().string() + ": cannot list: " + error.message());
  if (!plan.relaid || !base.has_index()) return {};
  std::vector<IndexEntry> index;
  uint64_t total = 0;
  for (const OutFile& file : plan.files) {
    for (const OutTensor& tensor : file.tensors) {
      index.push_back({tensor.spec.name, file.name});
      total += tensor.size;
    }
  }
  return write_index(folder, index, total);
}

}  // namespace

Result<ApplyReport> apply_delta(const fs::path& delta_path, const fs::path& base_path,
                                const fs::path& out, const ApplyOptions& options) {
  DW_ASSIGN_OR_RETURN(const Delta delta, open_delta(delta_path));
  DW_ASSIGN_OR_RETURN(const Checkpoint base, Checkpoint::open(base_path));
  ThreadPool pool(options.threads);
  const uint64_t total = base.data_bytes() * 2;  // read once to check, once to write
  uint64_t finished = 0;
  const Progress progress = [&](uint64_t done, uint64_t) {
    return !options.progress || options.progress(std::min(total, finished + done), total);
  };
  DW_ASSIGN_OR_RETURN(const std::vector<TensorState> before,
                      check_base(base, delta, &pool, progress));
  finished = base.data_bytes();
  DW_ASSIGN_OR_RETURN(const Plan plan, make_plan(base, delta));

  std::error_code error;
  const bool folder = fs::is_directory(base_path, error);
  fs::path temporary;
  if (folder) {
    DW_ASSIGN_OR_RETURN(temporary, create_temporary_folder(out));
  }
  Digest state;
  const auto build = [&]() -> Status {
    std::vector<MutableFile> files;
    for (const OutFile& file : plan.files) {
      DW_ASSIGN_OR_RETURN(MutableFile made,
                          MutableFile::create(folder ? temporary / file.name : out, file.size));
      DW_RETURN_IF_ERROR(build_file(file, &made, &pool, progress));
      finished += file.size;
      files.push_back(std::move(made));
    }
    state = planned_state(base, before, plan, delta.info.digest_kind,
                          [&](const OutFile& file, const OutTensor& tensor) {
                            return Bytes(files[size_t(&file - plan.files.data())].bytes())
                                .subspan(tensor.offset, tensor.size);
                          });
    if (delta.info.has_target() && state != delta.info.target) {
      return corruption(delta_path.string() + ": state after the patch: expected " +
                        delta.info.target.hex() + ", got " + state.hex());
    }
    for (MutableFile& file : files) DW_RETURN_IF_ERROR(file.commit());
    if (!folder) return {};
    DW_RETURN_IF_ERROR(copy_companions(base, plan, temporary));
    return publish_temporary_folder(temporary, out);
  };
  Status status = build();
  if (!status.ok()) {
    if (folder) remove_temporary_folder(temporary);
    return status;
  }

  ApplyReport report;
  report.target = state;
  report.num_removed = delta.info.removed.size();
  for (const OutFile& file : plan.files) {
    for (const OutTensor& tensor : file.tensors) {
      ++report.num_tensors;
      report.weights_bytes += tensor.size;
      if (brings_tensor(tensor.entries)) {
        ++report.num_added;
      } else if (!tensor.entries.empty()) {
        ++report.num_patched;
        for (const Delta::Entry* item : tensor.entries)
          report.num_changed += item->entry.num_changed;
      }
    }
  }
  return report;
}

}  // namespace deltawire
