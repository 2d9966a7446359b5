// A step of a local checkpoint in slime's way, in an order that survives the end of the process at
// any instant: the journal is on disk whole before the first byte of the checkpoint changes, and
// holds absolute values and whole files alone, so that it may be carried out any number of times.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

#include "base/thread_pool.h"
#include "bridge/slime/local.h"
#include "deltawire/checkpoint.h"
#include "deltawire/status.h"
#include "replica/journal.h"

namespace deltawire {

struct SlimeJournal {
  SlimeRecord next;                 // where it leads; the stamps of its files are not known yet
  std::vector<std::string> redo;    // parts in redo/, to be written into the checkpoint's files
  std::vector<std::string> files;   // in files/, to be renamed over those of the checkpoint
  std::vector<std::string> remove;  // weights of the old version that the new one lacks
  std::optional<uint64_t> from;     // what state.json said before
  // Of weights: with `redo`, those that are written to, as they were before; with `files`, the new
  // ones.
  FileStamps stamps;
};

// Drops what an earlier call has left unfinished before its commit.
Status clear_slime_work(const SlimeLocal& local);
// The committed journal that an earlier call has left; none: there is none.
Result<std::optional<SlimeJournal>> read_slime_journal(const SlimeLocal& local);
// Why the folder is not the one that the journal was made for; none: it is. Whoever else pulls into
// it knows nothing of journals: after a killed call it may have begun anew, or gone on.
std::optional<std::string> find_taken_over(const SlimeLocal& local, const SlimeJournal& journal);
// journal.new/ becomes journal/: from here on there is only the way forward.
Status commit_slime_journal(const SlimeLocal& local, const SlimeJournal& journal);

// The checkpoint has the new contents and the folder says so; the disk may not have it all yet, and
// so the journal is still there. Destroyed without settle(), it leaves the journal to the next
// call.
class SlimeStep {
 public:
  static Result<SlimeStep> carry_out(const SlimeLocal& local, const SlimeJournal& journal,
                                     ThreadPool* pool);
  // All is on disk, and the journal is gone.
  Status settle(ThreadPool* pool);

 private:
  explicit SlimeStep(SlimeLocal local) : local_(std::move(local)) {}
  SlimeLocal local_;
  std::optional<PatchedFiles> patched_;
};

// Names of the weights of a checkpoint in a folder: its files, and the index if there is one.
std::vector<std::string> weights_of(const Checkpoint& checkpoint);

}  // namespace deltawire
