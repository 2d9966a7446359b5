#include "replica/new_files.h"

#include <algorithm>
#include <set>

#include "base/folder.h"
#include "format/checkpoint_files.h"
#include "replica/build.h"
#include "replica/journal.h"
#include "replica/limits.h"
#include "replica/local_file.h"
#include "replica/local_state.h"
#include "tensor/sharded_index.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

JournalRecord record_of(const BuildContext& build, const PlannedLayout& layout, bool apart) {
  JournalRecord record;
  record.kind = apart ? JournalKind::kSwitch : JournalKind::kFiles;
  for (const PlannedFile& file : layout.files) record.weights.push_back(file.from->name);
  if (build.source.has_index()) record.weights.emplace_back(kIndexFileName);
  return record;
}

// Weights that the version does not change come along: copies that share their blocks where they
// can.
Status keep_held_files(const NewFiles& files, const std::vector<std::string>& gone) {
  std::error_code error;
  for (const auto& [name, stamp] : files.weights) {
    if (std::find(gone.begin(), gone.end(), name) != gone.end()) continue;
    if (fs::exists(files.folder / name, error)) continue;
    DW_RETURN_IF_ERROR(clone_file(files.held / name, files.folder / name));
  }
  return {};
}

// No file has other tensors than before.
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
