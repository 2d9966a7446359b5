#include "publish/commit.h"

#include "base/command.h"

namespace deltawire {
namespace {

// All of its bytes are in the store: only whether to go on is asked.
bool keep_going(const Manifest& manifest, const PublishOptions& options) {
  return !options.progress || options.progress(manifest.part_bytes(), manifest.part_bytes());
}

Status run_hook(const Chain& chain, const Manifest& manifest, const PublishOptions& options) {
  const Hook& hook = options.hook_before_commit;
  if (hook.command.empty()) return {};
  Status status =
      run_command(hook.command, {{{"DELTAWIRE_VERSION", std::to_string(manifest.version)},
                                  {"DELTAWIRE_STORE", chain.store().url()},
                                  {"DELTAWIRE_RUN", chain.run()}},
                                 hook.timeout_seconds,
                                 [&] { return !keep_going(manifest, options); }});
  if (status.ok() && !keep_going(manifest, options)) status = cancelled("stopped on request");
  if (status.ok()) return {};
  // A hook that says no is not another publisher's doing.
  const Code code = status.code() == Code::kConflict ? Code::kCancelled : status.code();
  return Status(code, "hook before the commit of version " + std::to_string(manifest.version) +
                          ": " + status.message() + "; nothing was committed");
}

}  // namespace

Commit commit_version(const Chain& chain, const Manifest& manifest, const PublishOptions& options,
                      const std::function<Status()>& check) {
  Status status = run_hook(chain, manifest, options);
  if (status.ok()) status = check();
  if (!status.ok()) return {Outcome::kNot, std::move(status), {}};
  return commit_version(chain, manifest);
}

}  // namespace deltawire
