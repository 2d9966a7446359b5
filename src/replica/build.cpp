#include "replica/build.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "base/file.h"
#include "base/guard.h"
#include "base/sync_point.h"
#include "base/waves.h"
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

// For messages: where the tensor is, as far as it is anywhere.
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
      if (local.bytes.size() > build.memory.large_tensor) {  // its entries go to disk one by one
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
  DW_RETURN_IF_ERROR(files.check_whole());  // first: what is lost looks like damage
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
    part.check_untouched = true;  // they are copied: every tensor is gone through
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

}  // namespace deltawire
