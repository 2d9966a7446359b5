// Options shared by `import` and `export`.
#pragma once

#include <optional>
#include <string>

#include "bridge/bridge.h"
#include "cli/command.h"
#include "cli/context.h"
#include "cli/options.h"
#include "cli/step_loop.h"
#include "cli/verbs.h"

namespace deltawire::cli {

struct BridgeVerbOptions {
  std::string dialect;
  std::optional<uint64_t> version, from, to;
  std::string work;
  uint64_t memory_bytes = 0;
  bool follow = false;
  double interval = 5;
  LogOptions log;
  StoreOptions store_options;

  // --version is a range of one.
  BridgeRange range() const {
    return version ? BridgeRange{version, version} : BridgeRange{from, to};
  }
};

// A version of another project, as --json prints it.
inline Json foreign_json(const ForeignSummary& version) {
  return {{"dialect", version.dialect},   {"version", version.version},
          {"full", version.full},         {"encoding", version.encoding},
          {"checksum", version.checksum}, {"tensors", version.num_tensors},
          {"files", version.num_files},   {"bytes", version.file_bytes}};
}

// DIALECT comes first: call it before the other arguments are added.
inline void add_dialect(Command* verb, BridgeVerbOptions* options) {
  std::string known;
  for (const DialectName& dialect : dialect_names()) {
    known += (known.empty() ? "" : ", ") + dialect.name + " (" + dialect.title + ")";
  }
  verb->add_option("DIALECT", options->dialect, known)->required();
}

inline void add_bridge_options(Command* verb, Context& context, BridgeVerbOptions* options) {
  Option* const one = add_version(verb, "--version", &options->version, "this version only");
  add_version(verb, "--from", &options->from, "from this version on")->excludes(one);
  add_version(verb, "--to", &options->to, "up to this version (default: the newest)")
      ->excludes(one);
  Option* const follow = verb->add_flag("--follow", options->follow,
                                        "keep running, for every new version, until interrupted");
  follow->excludes(one);
  add_seconds(verb, "--interval", &options->interval,
              "with --follow: polling interval, varied by up to a fifth (default 5)", 0.01, 86400)
      ->needs(follow);
  add_bytes(verb, "--memory", &options->memory_bytes,
            "memory for tensors of the version at hand; larger ones go to a file in the work "
            "folder (default: a quarter of the machine's memory)");
  add_log_options(verb, &options->log);
  add_threads(verb, context);
  add_store_options(verb, &options->store_options);
}

}  // namespace deltawire::cli
