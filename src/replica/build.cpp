#include "replica/build.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <set>

#include "base/file.h"
#include "base/folder.h"
#include "base/guard.h"
#include "base/sync_point.h"
#include "base/waves.h"
#include "format/checkpoint_files.h"
#include "replica/local_file.h"
#include "replica/stage.h"
#include "tensor/sharded_index.h"
#include "tensor/text.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

const TensorSpec& spec_of(const BuildContext& build, const TensorSteps& steps) {
  return build.target.schema.tensors[steps.index];
}

uint64_t size_of(const BuildContext& build, const TensorSteps& steps) {
  const TensorSpec& spec = spec_of(build, steps);
  return tensor_size_bytes(spec.dtype, spec.shape).value();  // checked when the schema was read
}

bool skipped(const BuildContext& build, const TensorSteps& steps) {
  return steps.entries.empty() && !build.check_untouched;
}

// The tensor's place for messages; just the source if it has no such tensor.
std::string place_of(const BuildContext& build, const TensorSteps& steps) {
  const fs::path file =
      steps.from == nullptr ? build.source.path() : build.source.files()[steps.from->file].path;
  return file.string() + ", tensor " + quote(spec_of(build, steps).name);
}

Status run_waves(const BuildContext& build,
                 const std::function<Status(const TensorSteps&, size_t, ThreadPool*)>& work,
                 const std::function<Status(size_t)>& finish = {}) {
  std::vector<size_t> chosen;
  std::vector<uint64_t> sizes;
  for (size_t i = 0; i < build.steps.size(); ++i) {
    if (skipped(build, build.steps[i])) continue;
    chosen.push_back(i);
    sizes.push_back(size_of(build, build.steps[i]));
  }
  return Waves(std::move(sizes), Waves::Inside::kShared, build.pool, build.progress,
               build.memory.wave_bytes)
      .run([&](size_t i,
               ThreadPool* inner) { return work(build.steps[chosen[i]], chosen[i], inner); },
           [&](size_t i) { return finish ? finish(chosen[i]) : Status(); });
}

Status write_new_index(const BuildContext& build, const PlannedLayout& layout,
                       const fs::path& folder) {
  std::vector<IndexEntry> entries;
  uint64_t total = 0;
  for (const PlannedFile& file : layout.files) {
    for (const PlannedTensor& tensor : file.tensors) {
      entries.push_back({build.target.schema.tensors[tensor.index].name, file.from->name});
      total += tensor.size;
    }
  }
  return write_index(folder, entries, total);
}

}  // namespace

Status build_redo(const BuildContext& build, PatchedFiles* files, const fs::path& scratch,
                  RedoWriter* redo) {
  std::vector<std::vector<RedoEntry>> made(build.steps.size());
  std::mutex mutex;
  const auto work = [&](const TensorSteps& steps, size_t number, ThreadPool* inner) -> Status {
    const CheckpointTensor& own = *build.source.find(spec_of(build, steps).name);
    TensorView local = own.view;
    DW_ASSIGN_OR_RETURN(local.bytes, files->to_read(own));
    const std::string place = place_of(build, steps);
    if (steps.entries.empty()) {
      return check_untouched(steps, build.target, place, local.bytes, inner);
    }
    const StageJob job{steps, build.target, place, local, scratch, build.memory, build.ahead};
    return stage_tensor(job, inner, [&](RedoEntry entry) -> Status {
      // its entries are written to disk one by one
      if (local.bytes.size() > build.memory.large_tensor) {
        const std::lock_guard lock(mutex);
        return redo->add(std::move(entry));
      }
      made[number].push_back(std::move(entry));
      return {};
    });
  };
  return run_waves(build, work, [&](size_t number) -> Status {
    for (RedoEntry& entry : made[number]) DW_RETURN_IF_ERROR(redo->add(std::move(entry)));
    made[number] = {};
    return {};
  });
}

Status build_in_place(const BuildContext& build) {
  PatchedFiles files(build.source);
  const auto work = [&](const TensorSteps& steps, size_t, ThreadPool* inner) -> Status {
    const CheckpointTensor& own = *build.source.find(spec_of(build, steps).name);
    const std::string place = place_of(build, steps);
    if (steps.entries.empty()) {
      return check_untouched(steps, build.target, place, own.view.bytes, inner);
    }
    DW_ASSIGN_OR_RETURN(const MutableBytes bytes, files.to_write(own));
    DW_RETURN_IF_ERROR(advance_tensor(steps, build.target, place, bytes, inner));
    DW_SYNC_POINT("replica: tensor built");
    return {};
  };
  Status status = run_waves(build, work);
  DW_RETURN_IF_ERROR(files.check_whole());  // first: lost bytes look like damage
  DW_RETURN_IF_ERROR(std::move(status));
  return files.mark().status();
}

Result<std::vector<std::string>> build_files(const BuildContext& build, const PlannedLayout& layout,
                                             const fs::path& folder) {
  std::vector<const TensorSteps*> steps_of(build.target.schema.tensors.size());
  for (const TensorSteps& steps : build.steps) steps_of[steps.index] = &steps;
  std::vector<std::string> written;
  for (const PlannedFile& file : layout.files) {
    const bool changes = std::any_of(
        file.tensors.begin(), file.tensors.end(),
        [&](const PlannedTensor& tensor) { return !steps_of[tensor.index]->entries.empty(); });
    std::vector<TensorSteps> own;
    std::map<size_t, const PlannedTensor*> places;
    for (const PlannedTensor& tensor : file.tensors) {
      own.push_back(*steps_of[tensor.index]);
      places[tensor.index] = &tensor;
    }
    BuildContext part = build;
    part.steps = own;
    if (!file.relaid && !changes) {
      const auto check = [&](const TensorSteps& steps, size_t, ThreadPool* inner) {
        return check_untouched(steps, build.target, place_of(part, steps), steps.from->view.bytes,
                               inner);
      };
      DW_RETURN_IF_ERROR(run_waves(part, check));
      continue;
    }
    part.check_untouched = true;  // the file is copied, so every tensor is visited
    DW_ASSIGN_OR_RETURN(MutableFile out, MutableFile::create(folder / file.from->name, file.size));
    const MutableBytes bytes = out.bytes();
    std::copy(file.header.begin(), file.header.end(), bytes.begin());
    const auto work = [&](const TensorSteps& steps, size_t, ThreadPool* inner) -> Status {
      const PlannedTensor& place = *places[steps.index];
      const MutableBytes data = bytes.subspan(place.offset, place.size);
      if (steps.from != nullptr) {
        std::copy(steps.from->view.bytes.begin(), steps.from->view.bytes.end(), data.begin());
      }
      return advance_tensor(steps, build.target, place_of(part, steps), data, inner);
    };
    DW_RETURN_IF_ERROR(run_waves(part, work));
    DW_SYNC_POINT("replica: new file built");
    DW_RETURN_IF_ERROR(out.commit());
    written.push_back(file.from->name);
  }
  if (layout.relaid && build.source.has_index()) {
    DW_RETURN_IF_ERROR(write_new_index(build, layout, folder));
    written.emplace_back(kIndexFileName);
  }
  return written;
}

namespace {

JournalRecord record_of(const BuildContext& build, const PlannedLayout& layout, bool apart) {
  JournalRecord record;
  record.kind = apart ? JournalKind::kSwitch : JournalKind::kFiles;
  for (const PlannedFile& file : layout.files) record.weights.push_back(file.from->name);
  if (build.source.has_index()) record.weights.emplace_back(kIndexFileName);
  return record;
}

// Clones the weights that the version does not change, sharing blocks where the filesystem can.
Status keep_held_files(const NewFiles& files, const std::vector<std::string>& gone) {
  std::error_code error;
  for (const auto& [name, stamp] : files.weights) {
    if (std::find(gone.begin(), gone.end(), name) != gone.end()) continue;
    if (fs::exists(files.folder / name, error)) continue;
    DW_RETURN_IF_ERROR(clone_file(files.held / name, files.folder / name));
  }
  return {};
}

// Used when the same tensors stay in the same files.
Status patch_copies(const BuildContext& build, std::span<const Delta> deltas, const NewFiles& files,
                    const std::vector<std::string>& weights) {
  DW_RETURN_IF_ERROR(keep_held_files(files, {}));
  DW_ASSIGN_OR_RETURN(const Checkpoint copy, open_own_checkpoint(files.folder, weights));
  DW_ASSIGN_OR_RETURN(const std::vector<TensorSteps> steps,
                      collect_steps(copy, deltas, build.target.schema));
  return build_in_place(
      {build.target, copy, steps, build.check_untouched, build.pool, build.progress, build.memory});
}

}  // namespace

Result<JournalRecord> build_from_held(const BuildContext& build, std::span<const Delta> deltas,
                                      const NewFiles& files) {
  DW_ASSIGN_OR_RETURN(const PlannedLayout layout, plan_layout(build.source, build.target.schema));
  DW_RETURN_IF_ERROR(make_folder(files.folder));
  JournalRecord record = record_of(build, layout, files.apart);
  if (!layout.relaid) {
    DW_RETURN_IF_ERROR(patch_copies(build, deltas, files, record.weights));
    return record;
  }
  DW_ASSIGN_OR_RETURN(record.files, build_files(build, layout, files.folder));
  record.remove = layout.gone;
  if (files.apart) DW_RETURN_IF_ERROR(keep_held_files(files, layout.gone));
  return record;
}

Result<JournalRecord> build_from_whole(const BuildContext& build, const Hop& whole,
                                       const fs::path& fetched, const NewFiles& files) {
  DW_ASSIGN_OR_RETURN(const PlannedLayout layout, plan_layout(build.source, build.target.schema));
  JournalRecord record = record_of(build, layout, files.apart);
  if (layout.relaid) {
    DW_RETURN_IF_ERROR(make_folder(files.folder));
    DW_ASSIGN_OR_RETURN(const std::vector<std::string> built,
                        build_files(build, layout, files.folder));
    std::set<std::string> done(built.begin(), built.end());
    done.insert(layout.gone.begin(), layout.gone.end());
    for (const PartRef& part : whole.parts) {
      DW_ASSIGN_OR_RETURN(const std::string stored, checkpoint_file_of(part));
      const std::string name(plain_file_name(stored));
      if (!is_weights_file(name) || !done.insert(name).second) continue;
      DW_RETURN_IF_ERROR(rename_path(fetched / name, files.folder / name));
    }
  } else {
    DW_RETURN_IF_ERROR(build_in_place(build));
    DW_RETURN_IF_ERROR(rename_path(fetched, files.folder));
  }
  record.files = record.weights;
  if (files.apart) return record;
  const std::set<std::string> now(record.files.begin(), record.files.end());
  for (const auto& [name, stamp] : files.weights) {
    if (!now.contains(name)) record.remove.push_back(name);
  }
  return record;
}

}  // namespace deltawire
