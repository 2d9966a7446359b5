// The step that makes a version exist. A put whose answer is lost, and a store that fails right
// after it, must not be taken for a refusal: parts that a committed manifest names would be
// deleted.
#include "base/sync_point.h"
#include "chain/chain.h"
#include "chain/head.h"
#include "chain/names.h"

namespace deltawire {
namespace {

Status taken_by(const Chain& chain, const Manifest& other) {
  return conflict(chain.store().url() + ": version " + std::to_string(other.version) +
                  " was published by another publisher: " + other.publisher + " at " +
                  other.created);
}

// A publisher that was suspended for a whole retention period finds its number free again. Its
// version is then not part of the chain, because newer versions do not build on it. Its record is
// removed, so that no reader finds it; its parts are left to gc.
Commit check_newest(const Chain& chain, const Manifest& manifest, const Digest& digest) {
  const Commit committed{Outcome::kCommitted, {}, digest};
  const Result<std::vector<uint64_t>> newer = listed_from(chain.store(), manifest.version + 1);
  // A store that fails now says nothing about the version, which it has acknowledged.
  if (!newer.ok() || newer->empty()) return committed;
  const Result<VersionRecord> next = chain.version(manifest.version + 1);
  if (next.ok() && next->manifest.parent == digest) return committed;
  Status failure = next.status();
  // A hole, if the listing says so, too, and there is something beyond it.
  if (failure.code() == Code::kNotFound && newer->front() != manifest.version + 1) {
    failure = chain.version(newer->back()).status();
    if (failure.code() == Code::kNotFound) return committed;  // the listing was wrong
  }
  if (!failure.ok()) return {Outcome::kUnknown, std::move(failure), digest};
  (void)chain.store().remove(manifest_name(manifest.version));
  return {Outcome::kTooLate,
          conflict(chain.store().url() + ": version " + std::to_string(manifest.version) +
                   " can no longer be committed: the chain is already at version " +
                   std::to_string(newer->back()) + " without it"),
          digest};
}

// Resolves a failed put. A Conflict may be with our own earlier attempt; any other failure leaves
// open what the store holds. Only a valid record of another publisher proves that ours was not
// stored, and never will be if a name can be taken only once.
Commit settle_put(const Chain& chain, const Manifest& manifest, const Digest& digest,
                  bool only_if_absent, Status answer) {
  const Chain reader = with_other_keys(chain, {});  // the signature does not matter here
  const Result<VersionRecord> there = reader.version(manifest.version);
  if (there.ok() && there->digest == digest) return check_newest(chain, manifest, digest);
  if (there.ok() && only_if_absent) {
    return {Outcome::kNot, taken_by(chain, there->manifest), digest};
  }
  if (answer.code() != Code::kConflict) return {Outcome::kUnknown, std::move(answer), digest};
  // The name is taken, by whom cannot be told.
  return {Outcome::kUnknown, there.status(), digest};
}

}  // namespace

Commit commit_version(const Chain& chain, const Manifest& manifest) {
  Store& store = chain.store();
  const Result<std::string> text = serialise_manifest(manifest, keys_of(chain).sign);
  if (!text.ok()) return {Outcome::kNot, text.status(), {}};
  if (text->size() > kMaxManifestBytes) {  // readers would refuse it
    return {Outcome::kNot,
            unsupported("the manifest of version " + std::to_string(manifest.version) + " has " +
                        std::to_string(text->size()) + " bytes; at most " +
                        std::to_string(kMaxManifestBytes) +
                        " can be read: there are too many tensors, or too many boxes"),
            {}};
  }
  const Digest digest = record_digest(*text);
  const std::string name = manifest_name(manifest.version);
  const Result<Capabilities> can = store.capabilities();
  if (!can.ok()) return {Outcome::kNot, can.status(), digest};
  if (!can->put_if_absent) {  // a single writer, which looks first
    const Result<VersionRecord> there = chain.version(manifest.version);
    if (there.ok() && there->digest == digest) return check_newest(chain, manifest, digest);
    if (there.ok()) return {Outcome::kNot, taken_by(chain, there->manifest), digest};
    if (there.status().code() != Code::kNotFound) return {Outcome::kNot, there.status(), digest};
  }
  const MemoryBody body(*text);
  DW_SYNC_POINT("publish: before commit");
  Status answer = can->put_if_absent ? store.put_if_absent(name, body) : store.put(name, body);
  DW_SYNC_POINT("publish: after commit");
  Commit commit = answer.ok()
                      ? check_newest(chain, manifest, digest)
                      : settle_put(chain, manifest, digest, can->put_if_absent, std::move(answer));
  if (commit.ok()) {
    // Only a hint: the version is committed whether or not this works.
    const std::string hint = std::to_string(manifest.version) + "\n";
    (void)store.put(kHeadName, MemoryBody(hint));
  }
  return commit;
}

}  // namespace deltawire
