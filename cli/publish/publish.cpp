#include <fmt/format.h>

#include <cstdlib>

#include "cli/publish/report.h"
#include "cli/store_options.h"
#include "cli/units.h"
#include "cli/verbs.h"
#include "deltawire/publisher.h"

namespace deltawire::cli {
namespace {

struct Options {
  std::string checkpoint, store, snapshot;
  std::string digest = "xxh3-128", part_size = "64MiB", memory_limit = "2GiB", mode = "delta";
  bool no_anchors = false;
  StoreOptions store_options;
  PublishOptions publish;
};

// Where snapshots lie unless they are given a place: a folder per run.
Result<std::filesystem::path> snapshots_folder() {
  const char* const cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0')
    return std::filesystem::path(cache) / "deltawire/snapshots";
  const char* const home = std::getenv("HOME");
  if (home != nullptr && *home != '\0') {
    return std::filesystem::path(home) / ".cache/deltawire/snapshots";
  }
  return invalid_argument("neither XDG_CACHE_HOME nor HOME is set; say --snapshot DIR");
}

Status complete_options(const Context& context, Options* options) {
  PublishOptions& publish = options->publish;
  const auto digest = parse_digest_kind(options->digest);
  if (!digest || (*digest != DigestKind::kXxh3_128 && *digest != DigestKind::kBlake3)) {
    return invalid_argument("digest \"" + options->digest +
                            "\" does not prove a version; use xxh3-128 or blake3");
  }
  publish.digest = *digest;
  DW_ASSIGN_OR_RETURN(publish.part_bytes, parse_count(options->part_size));
  DW_ASSIGN_OR_RETURN(publish.memory_limit, parse_count(options->memory_limit));
  publish.full = options->mode == "full";
  if (options->no_anchors) {
    publish.anchor_every = 0;
    publish.anchor_by_bytes = false;
  }
  publish.threads = context.threads;
  publish.snapshot_per_run = options->snapshot.empty();
  return {};
}

Result<Publisher> open_publisher(const Options& options) {
  std::filesystem::path snapshot = options.snapshot;
  if (snapshot.empty()) {
    DW_ASSIGN_OR_RETURN(snapshot, snapshots_folder());
  }
  DW_ASSIGN_OR_RETURN(std::shared_ptr<Store> store,
                      open_store(options.store, options.store_options));
  return Publisher::open(std::move(store), std::move(snapshot), options.publish);
}

Status explain(Status status) {
  if (status.code() != Code::kConflict) return status;
  return Status(status.code(),
                status.message() + "; publish again to go on from the version that is there");
}

int publish(const Context& context, Options& options) {
  if (Status status = complete_options(context, &options); !status.ok()) {
    return context.fail(status);
  }
  const Result<PublishReport> report = [&]() -> Result<PublishReport> {
    ProgressBar bar(context, "publish");
    options.publish.progress = bar.callback();
    DW_ASSIGN_OR_RETURN(Publisher publisher, open_publisher(options));
    return publisher.publish_checkpoint(options.checkpoint);
  }();
  if (!report.ok()) return context.fail(explain(report.status()));
  context.emit(to_json(*report));
  say_report(context, *report);
  return context.succeed();
}

}  // namespace

void add_publish(CLI::App& app, Context& context, Run* run) {
  CLI::App* verb = make_verb(
      app, context, "publish", "Publish a checkpoint as the next version of a chain",
      "  deltawire publish step-100/ /mnt/shared/run7     first: the seed; later: what changed\n"
      "  deltawire publish step-200/ s3://bucket/run7 --endpoint https://s3.example\n"
      "  deltawire publish step-300/ /mnt/shared/run7 --anchor-every 50 --codec tight --json");
  auto options = std::make_shared<Options>();
  PublishOptions& publish_options = options->publish;
  verb->add_option("CKPT", options->checkpoint, "a .safetensors file or a folder")->required();
  verb->add_option("STORE", options->store, "a folder, s3://BUCKET/PREFIX or file:///PATH")
      ->required();
  verb->add_option(
      "--codec", publish_options.codec,
      "auto (default), tight, gaps, gaps-zstd, xor-zstd, overwrite-zstd, indices or raw");
  verb->add_option("--digest", options->digest, "of a new run: xxh3-128 (default) or blake3");
  verb->add_option("--mode", options->mode,
                   "delta (default), or full: every version whole, without a snapshot")
      ->check(CLI::IsMember({"delta", "full"}));
  verb->add_option("--part-size", options->part_size, "of one part (default 64MiB)");
  verb->add_option("--memory-limit", options->memory_limit,
                   "what publishing may take beside the snapshot (default 2GiB)");
  verb->add_option("--snapshot", options->snapshot,
                   "folder that keeps the last published state (default: "
                   "~/.cache/deltawire/snapshots/RUN)");
  auto* every = verb->add_option("--anchor-every", publish_options.anchor_every,
                                 "also store every N-th version whole");
  auto* by_bytes =
      verb->add_flag("--anchor-by-bytes,!--no-anchor-by-bytes", publish_options.anchor_by_bytes,
                     "also store a version whole when the deltas since the last have "
                     "outgrown it (default)");
  verb->add_flag("--no-anchors", options->no_anchors, "never store a version whole beside the seed")
      ->excludes(every)
      ->excludes(by_bytes);
  verb->add_option("--sign-key", publish_options.sign_key, "sign manifests with this private key");
  verb->add_option("--trust", publish_options.trust_key,
                   "refuse a chain that is not signed with this public key");
  verb->add_option("--hook-before-commit", publish_options.hook_before_commit,
                   "shell command, run when all parts are in the store; unless it exits with 0 "
                   "nothing is committed (DELTAWIRE_VERSION, _STORE, _RUN)");
  verb->add_option("--hook-timeout", publish_options.hook_timeout_seconds,
                   "seconds that the hook may take (default 600)")
      ->check(CLI::Range(0.001, 86400.0));
  verb->add_flag("--single-writer", publish_options.single_writer,
                 "there is no other publisher: allow a store without conditional put");
  add_threads(verb, context);
  add_store_options(verb, &options->store_options);
  verb->callback([&context, run, options] {
    *run = [&context, options] { return publish(context, *options); };
  });
}

}  // namespace deltawire::cli
