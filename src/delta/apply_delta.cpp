// Applies a delta to a checkpoint, which gives the next checkpoint.
#include <algorithm>
#include <functional>

#include "base/thread_pool.h"
#include "base/waves.h"
#include "delta/apply_plan.h"
#include "delta/delta_reader.h"
#include "delta/delta_writer.h"
#include "delta/tracker.h"
#include "deltawire/checkpoint.h"
#include "deltawire/delta.h"
#include "tensor/sharded_index.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

// Builds one tensor's new state in the output and proves it.
Status build_tensor(OutTensor* tensor, MutableBytes out, ThreadPool* pool) {
  if (tensor->from != nullptr) {
    std::copy(tensor->from->view.bytes.begin(), tensor->from->view.bytes.end(), out.begin());
  }
  for (const Delta::Entry* item : tensor->entries) {
    DW_RETURN_IF_ERROR(apply_checked(*item, out, pool));
  }
  if (tensor->entries.empty()) return {};
  const DeltaEntry& first = tensor->entries[0]->entry;
  // Digests of boxes do not give the digest of their tensor.
  tensor->state = first.box.whole() ? first.new_digest : digest_of(DigestKind::kSum128, out);
  return {};
}

Status build_file(OutFile* file, MutableBytes bytes, ThreadPool* pool, const Progress& progress) {
  std::copy(file->header.begin(), file->header.end(), bytes.begin());
  std::vector<uint64_t> sizes;
  for (const OutTensor& tensor : file->tensors) sizes.push_back(tensor.size);
  return Waves(std::move(sizes), Waves::Inside::kShared, pool, progress)
      .run([&](size_t i, ThreadPool* inner) {
        OutTensor& tensor = file->tensors[i];
        return build_tensor(&tensor, bytes.subspan(tensor.offset, tensor.size), inner);
      });
}

Digest state_of(const ApplyPlan& plan) {
  std::vector<TensorState> states;
  for (const OutFile& file : plan.files) {
    for (const OutTensor& tensor : file.tensors) {
      states.push_back({tensor.spec.name, tensor.spec.dtype, tensor.spec.shape, tensor.state});
    }
  }
  return state_digest(std::move(states));
}

fs::perms bits_of(const fs::path& path) {
  std::error_code error;
  return fs::status(path, error).permissions() & fs::perms::all;
}

// The destination. The result is a file or a folder, like the base.
struct Output {
  fs::path shown, target;  // as given; with links followed
  bool folder = false;
  fs::path temporary;  // holds the folder until it is complete
};

Result<Output> choose_output(const Checkpoint& base, const Delta& delta, const fs::path& delta_path,
                             const fs::path& out) {
  std::error_code error;
  Output output;
  output.shown = out;
  output.folder = fs::is_directory(base.path(), error);
  std::vector<fs::path> parts;
  for (const auto& file : delta.files) parts.push_back(file->path());
  DW_RETURN_IF_ERROR(refuse_input(out, delta_path, parts));
  // A single file may be patched in place, because it is replaced only when the new one is
  // complete.
  if (output.folder) DW_RETURN_IF_ERROR(refuse_input(out, base.path(), {}));
  if (output.folder && is_single_part(out)) {
    return invalid_argument(out.string() + ": " + base.path().string() +
                            " is a folder, and so is the result; choose a name that does not end "
                            "in .safetensors");
  }
  DW_ASSIGN_OR_RETURN(output.target,
                      prepare_output(out, output.folder ? OutputForm::kFolder : OutputForm::kFile));
  return output;
}

// Copies the other files of the base's folder: configuration, tokenizer.
Status copy_companions(const Checkpoint& base, const ApplyPlan& plan, const Output& output,
                       const Poll& poll) {
  std::error_code error, ignored;  // a dangling link is not a file, and not an error
  for (const auto& item : fs::directory_iterator(base.path(), error)) {
    const std::string name = item.path().filename().string();
    const auto files = base.files();
    const bool weights = std::any_of(files.begin(), files.end(),
                                     [&](const CheckpointFile& file) { return file.name == name; });
    if (weights || !item.is_regular_file(ignored) || (plan.relaid && name == kIndexFileName))
      continue;
    DW_RETURN_IF_ERROR(poll());
    fs::copy_file(item.path(), output.temporary / name, error);
    if (error) {
      return io_error((output.shown / name).string() + ": cannot copy: " + error.message());
    }
  }
  if (error) return io_error(base.path().string() + ": cannot list: " + error.message());
  if (!plan.relaid || !base.has_index()) return {};
  std::vector<IndexEntry> index;
  uint64_t total = 0;
  for (const OutFile& file : plan.files) {
    for (const OutTensor& tensor : file.tensors) {
      index.push_back({tensor.spec.name, file.from->name});
      total += tensor.size;
    }
  }
  DW_ASSIGN_OR_RETURN(const std::string text, serialise_index(index, total));
  return write_text_file(output.temporary / kIndexFileName, text, output.shown / kIndexFileName);
}

Status wrong_result(const Delta& delta, const fs::path& delta_path, const Digest& got) {
  std::string message = delta_path.string() + ": state after the patch: expected " +
                        delta.info.target.hex() + ", got " + got.hex();
  if (delta_path.filename().string().starts_with("part-")) {
    message += "; is this one part of several? give the folder that holds all of them";
  }
  return corruption(std::move(message));
}

// Builds all files, checks the resulting state, and moves the files into place.
Status build(const Checkpoint& base, const Delta& delta, const fs::path& delta_path,
             const Output& output, const std::function<Status()>& check_inputs, ApplyPlan* plan,
             ThreadPool* pool, Tracker* tracker, Digest* state) {
  std::vector<MutableFile> files;
  for (OutFile& file : plan->files) {
    const std::string& name = file.from->name;
    DW_ASSIGN_OR_RETURN(
        MutableFile made,
        output.folder ? MutableFile::create(output.temporary / name, file.size, output.shown / name)
                      : MutableFile::create(output.target, file.size, output.shown));
    Status built = build_file(&file, made.bytes(), pool, tracker->stage());
    DW_RETURN_IF_ERROR(check_inputs());
    DW_RETURN_IF_ERROR(std::move(built));
    DW_RETURN_IF_ERROR(made.set_permissions(bits_of(file.from->path)));
    tracker->finish_stage(file.size);
    files.push_back(std::move(made));
  }
  *state = state_of(*plan);
  if (delta.info.has_target() && *state != delta.info.target) {
    return wrong_result(delta, delta_path, *state);
  }
  const Poll poll = tracker->poll();
  for (MutableFile& file : files) DW_RETURN_IF_ERROR(file.commit(poll));
  if (!output.folder) return {};
  DW_RETURN_IF_ERROR(copy_companions(base, *plan, output, poll));
  DW_RETURN_IF_ERROR(poll());
  std::error_code ignored;  // best effort: not every filesystem has permissions
  fs::permissions(output.temporary, bits_of(base.path()), ignored);
  return publish_temporary_folder(output.temporary, output.target);
}

ApplyReport report_of(const ApplyPlan& plan, const Delta& delta, const Digest& state) {
  ApplyReport report;
  report.target = state;
  report.target_known = delta.info.has_target();
  report.num_removed = delta.info.removed.size();
  for (const OutFile& file : plan.files) {
    for (const OutTensor& tensor : file.tensors) {
      ++report.num_tensors;
      report.weights_bytes += tensor.size;
      if (tensor.brought()) {
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

}  // namespace

Result<ApplyReport> apply_delta(const fs::path& delta_path, const fs::path& base_path,
                                const fs::path& out, const ApplyOptions& options) {
  DW_ASSIGN_OR_RETURN(const Delta delta, open_delta(delta_path));
  if (delta.num_siblings != 0) {
    return invalid_argument(delta_path.string() + ": one of the " +
                            std::to_string(delta.num_siblings) +
                            " parts of a delta; give the folder that holds them");
  }
  DW_ASSIGN_OR_RETURN(const Checkpoint base, open_checkpoint(base_path));
  DW_ASSIGN_OR_RETURN(Output output, choose_output(base, delta, delta_path, out));
  ThreadPool pool(options.threads);
  Tracker tracker(options.progress, base.data_bytes() * 2);  // one pass to check, one to write
  // The inputs may have changed while they were read.
  const auto check_inputs = [&]() -> Status {
    DW_RETURN_IF_ERROR(delta.check_unchanged());
    return base.check_unchanged();
  };
  const Result<std::vector<TensorState>> before =
      check_base(base.path().string(), base.tensors(), delta, &pool, tracker.stage());
  DW_RETURN_IF_ERROR(check_inputs());
  DW_RETURN_IF_ERROR(Status(before.status()));
  tracker.finish_stage(base.data_bytes());
  DW_ASSIGN_OR_RETURN(ApplyPlan plan, plan_apply(base, delta, *before));
  if (output.folder) {
    DW_ASSIGN_OR_RETURN(output.temporary, create_temporary_folder(output.target));
  }
  Digest state;
  Status status =
      build(base, delta, delta_path, output, check_inputs, &plan, &pool, &tracker, &state);
  if (!status.ok()) {
    if (output.folder) remove_temporary_folder(output.temporary);
    return status;
  }
  return report_of(plan, delta, state);
}

}  // namespace deltawire
