// Reading a feed. The replica may remove steps at any time: what is gone half-way is left out.
#include <algorithm>

#include "base/guard.h"
#include "digest/sums.h"
#include "format/checkpoint_files.h"
#include "format/manifest.h"
#include "live/feed.h"
#include "replica/journal.h"
#include "replica/local_state.h"
#include "tensor/text.h"

namespace deltawire {
namespace fs = std::filesystem;
namespace {

// A step that brings or removes weights files, rather than patching them, is not in its redo
// record.
bool patches_all(const JournalRecord& record) {
  const auto is_weights = [](const std::string& name) { return is_weights_file(name); };
  return record.kind == JournalKind::kPatch &&
         std::none_of(record.files.begin(), record.files.end(), is_weights) &&
         std::none_of(record.remove.begin(), record.remove.end(), is_weights);
}

FeedStep step_of(JournalRecord record, fs::path folder) {
  FeedStep step;
  if (patches_all(record)) {
    step.from = record.from;
    step.parts = std::move(record.redo);
  }
  step.to = record;
  step.manifest = std::move(record.target);
  step.folder = std::move(folder);
  return step;
}

}  // namespace

Result<std::vector<FeedStep>> read_feed(const fs::path& local) {
  return guard_memory("reading a feed", [&]() -> Result<std::vector<FeedStep>> {
    const LocalLayout layout{local};
    std::error_code error;
    if (!fs::is_directory(layout.feed(), error)) {
      return not_found(local.string() + ": has no feed; its replica keeps one if told to");
    }
    std::vector<FeedStep> steps;
    for (const uint64_t version : version_folders(layout.feed())) {
      fs::path folder = layout.feed_version(version);
      Result<JournalRecord> record = read_journal_record(folder);
      if (!record.ok() || record->version != version) continue;
      steps.push_back(step_of(std::move(*record), std::move(folder)));
    }
    return steps;
  });
}

Result<std::vector<FeedStep>> steps_between(const std::vector<FeedStep>& steps,
                                            const Identity& from, const Identity& to) {
  // Back from the goal: the step to each version is the newest that led there.
  std::vector<FeedStep> path;
  for (Identity at = to; at != from;) {
    const auto step =
        std::find_if(steps.begin(), steps.end(), [&](const FeedStep& s) { return s.to == at; });
    if (step == steps.end() || !step->from || path.size() == steps.size()) {
      return not_found("the feed does not lead from " + to_string(from) + " to " + to_string(to) +
                       ": " + to_string(at) +
                       (step == steps.end() ? " is not in it" : " is not a delta there"));
    }
    path.push_back(*step);
    at = *step->from;
  }
  std::reverse(path.begin(), path.end());
  return path;
}

Result<std::map<std::string, Digest>> feed_digests(const FeedStep& step, const Schema& schema) {
  const Manifest& manifest = step.manifest;
  const std::string version = to_string(step.to);
  const Result<std::vector<TensorState>> states = states_of(schema, manifest);
  if (!states.ok() || state_digest(*states) != manifest.state) {
    return base_mismatch("the tensors are not those of " + version);
  }
  std::map<std::string, Digest> digests;
  for (size_t i = 0; i < schema.tensors.size(); ++i) {
    const std::string& name = schema.tensors[i].name;
    if (boxes_hashed(manifest, name) != nullptr) continue;  // of which only boxes have digests
    digests.emplace(name, manifest.digests[i]);
  }
  return digests;
}

}  // namespace deltawire
