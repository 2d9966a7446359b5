// Catching up in a folder: prepares a journal (journal.new/) that leads to the version, either by
// patching the checkpoint with a redo record or with new files.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "deltawire/checkpoint.h"
#include "replica/build.h"
#include "replica/catch_up.h"
#include "replica/impl.h"
#include "replica/journal_redo.h"
#include "replica/local_file.h"
#include "replica/side_files.h"

namespace deltawire {

class FileSink final : public CatchUpSink {
 public:
  FileSink(ReplicaCore* replica, Attempt* attempt) : replica_(*replica), attempt_(*attempt) {}

  Status begin() override;
  Status look_at_plan() override;
  Result<bool> is_there() override;
  uint64_t local_bytes() const override;
  std::filesystem::path work_folder() const override { return replica_.layout.work(); }
  Result<bool> take_file(const PartRef& part, const std::filesystem::path& folder) override;
  Result<std::vector<FetchItem>> items_beside() override;
  Result<bool> open_held() override;
  HeldTensors held() const override { return *held_; }
  Status stage(const ReadySteps& ready) override;
  Status build(FetchedVersion version) override;
  Status finish() override;

 private:
  const Manifest& manifest() const { return attempt_.plan.target.manifest; }
  std::filesystem::path side_file(size_t number) const {
    return work_folder() / "sides" / std::to_string(number);
  }
  std::filesystem::path files_folder() const { return replica_.layout.new_journal() / "files"; }
  std::filesystem::path redo_folder() const { return replica_.layout.new_journal() / "redo"; }
  std::filesystem::path held_folder() const;
  std::filesystem::path sides_folder() const;
  StageMemory memory() const { return share_stage_memory(replica_.options.limits.memory_bytes); }

  Result<Checkpoint> open_checkpoint() const;
  Status check_unedited() const;
  Status check_held();
  Status say_defect();
  Status move_link();
  Status begin_redo();
  BuildContext context(const Target& target, const Checkpoint& source,
                       std::span<const TensorSteps> steps, bool check_untouched) const;
  Status place_sides();
  Status sync_files(const std::filesystem::path& folder, const std::vector<std::string>& names);
  Result<FileStamps> stamp_written(const std::filesystem::path& files) const;
  Status write_journal(const std::filesystem::path& files);

  ReplicaCore& replica_;
  Attempt& attempt_;
  bool verify_all_ = false;
  SidePlan sides_;
  FileStamps stamps_;  // of held files, taken before they are read
  std::optional<Checkpoint> held_;
  std::unique_ptr<PatchedFiles> files_;  // of `held_`, when it is patched in place
  std::optional<RedoWriter> redo_;
  JournalRecord record_;  // of the step
};

}  // namespace deltawire
