#include "deltawire/chain.h"

namespace deltawire {

Result<Standing> Standings::of(const Heartbeat& beat) {
  constexpr size_t kShownDigits = 8;
  Standing standing;
  if (!beat.held) return standing;
  const Identity& held = *beat.held;
  if (held.run != chain_.run()) {
    return Standing{"other run", "holds run " + held.run.substr(0, kShownDigits), {}, true};
  }
  if (!head_ || held.version > head_->version) {
    return Standing{"ahead", "is ahead of the store's head", {}, false};
  }
  DW_ASSIGN_OR_RETURN(const std::string manifest, manifest_of(held.version));
  if (!manifest.empty() && manifest != held.manifest) {
    const std::string number = std::to_string(held.version);
    return Standing{
        "other history", "holds another version " + number + " than the store", {}, true};
  }
  standing.lag = head_->version - held.version;
  standing.word = *standing.lag == 0 ? "current" : "behind";
  return standing;
}

Result<std::string> Standings::manifest_of(uint64_t version) {
  constexpr size_t kMostKnown = 4096;
  if (version == head_->version) return head_->manifest;
  if (const auto known = manifests_.find(version); known != manifests_.end()) return known->second;
  const Result<VersionRecord> record = chain_.version(version);
  if (!record.ok() && record.status().code() == Code::kUnavailable) return record.status();
  if (manifests_.size() >= kMostKnown) manifests_.clear();
  return manifests_[version] = record.ok() ? record->identity().manifest : "";
}

}  // namespace deltawire
