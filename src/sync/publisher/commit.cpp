#include "sync/publisher/commit.h"

#include "base/command.h"
#include "base/sync_point.h"

namespace deltawire {
namespace {

// All of its bytes are in the store: only whether to go on is asked.
bool keep_going(const Manifest& manifest, const PublishOptions& options) {
  return !options.progress || options.progress(manifest.part_bytes(), manifest.part_bytes());
}

Status run_hook(const Chain& chain, const Manifest& manifest, const PublishOptions& options) {
  if (options.hook_before_commit.empty()) return {};
  Status status = run_command(options.hook_before_commit,
                              {{{"DELTAWIRE_VERSION", std::to_string(manifest.version)},
                                {"DELTAWIRE_STORE", chain.store().url()},
                                {"DELTAWIRE_RUN", chain.run()}},
                               options.hook_timeout_seconds,
                               [&] { return !keep_going(manifest, options); }});
  if (status.ok() && !keep_going(manifest, options)) status = cancelled("stopped on request");
  if (status.ok()) return {};
  // A hook that says no is not another publisher's doing.
  const Code code = status.code() == Code::kConflict ? Code::kCancelled : status.code();
  return Status(code, "hook before the commit of version " + std::to_string(manifest.version) +
                          ": " + status.message() + "; nothing was committed");
}

}  // namespace

CommitResult commit_version(const Chain& chain, const Manifest& manifest,
                            const PublishOptions& options, const std::function<Status()>& check) {
  CommitResult result;
  result.status = run_hook(chain, manifest, options);
  if (result.status.ok()) result.status = check();
  if (!result.status.ok()) return result;
  // The same bytes that commit() puts: signatures are deterministic.
  Result<std::string> text = serialise_manifest(manifest, chain.options().sign);
  if (!text.ok()) {
    result.status = std::move(text).status();
    return result;
  }
  result.record = {manifest, record_digest(*text)};
  DW_SYNC_POINT("publish: before commit");
  const Result<Digest> committed = chain.commit(manifest);
  DW_SYNC_POINT("publish: after commit");
  if (committed.ok()) {
    result.outcome = Outcome::kCommitted;
    return result;
  }
  result.status = committed.status();
  if (result.status.code() != Code::kUnavailable && result.status.code() != Code::kIo) {
    return result;
  }
  const Result<VersionRecord> there = chain.version(manifest.version);
  if (there.ok()) {
    const bool ours = there->digest == result.record.digest;
    result.outcome = ours ? Outcome::kCommitted : Outcome::kNot;
    if (ours) result.status = {};
  } else {
    result.outcome = Outcome::kUnknown;
  }
  return result;
}

}  // namespace deltawire
