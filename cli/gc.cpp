#include <fmt/format.h>

#include "cli/options.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

struct GcArguments {
  ChainArgs chain;
  uint64_t keep = 0;
  std::string grace = "1h";
  bool dry_run = false, is_unsigned = false;
};

std::string range_text(const VersionRange& range) {
  return range.first == range.last ? std::to_string(range.first)
                                   : fmt::format("{}-{}", range.first, range.last);
}

std::string because_text(const KeptBecause& because) {
  if (because.why == "recent") return "put recently, so a writer may still need them";
  if (because.why == "unreadable heartbeat") return "a heartbeat cannot be read, see the note";
  if (because.replica.empty()) return because.why;
  return fmt::format("{} of replica {} until {}", because.why, shown_replica(because.replica),
                     utc_text(because.until));
}

void say_reasons(const Context& context, const GcReport& report) {
  Table table({{"versions", false}, {"anchor"}, {"kept because", false}});
  for (const KeptVersions& kept : report.reasons) {
    table.add({range_text(kept.versions),
               kept.first < kept.versions.first ? std::to_string(kept.first) : "-",
               because_text(kept.because)});
  }
  table.say(context);
}

void say_waiting(const Context& context, const KeptObjects& waiting) {
  std::string line = fmt::format("waiting: {}, {}: ", plural(waiting.num_objects, "object"),
                                 human_bytes(double(waiting.bytes)));
  line += because_text(waiting.because);
  if (waiting.because.replica.empty() && waiting.because.until != 0) {
    line += " until " + utc_text(waiting.because.until);
  }
  context.say(line);
}

void say(const Context& context, const GcReport& report, bool dry_run) {
  std::string kept;
  for (const VersionRange& range : report.kept) {
    kept += (kept.empty() ? "" : ", ") + range_text(range);
  }
  const char* const would = dry_run ? "would be " : "";
  if (!kept.empty()) {
    context.say("kept: versions " + kept);
    say_reasons(context, report);
  }
  context.print("{}removed: {}, {}", would, plural(report.num_versions, "version"),
                plural(report.num_hops, "hop record"));
  context.print("{}noted, to be deleted by a later run: {}, {}{}", would,
                plural(report.num_noted, "object"), human_bytes(double(report.noted_bytes)),
                report.num_orphans == 0
                    ? ""
                    : fmt::format(", {} of them of no version", human_count(report.num_orphans)));
  context.print("{}deleted: {}, {}", would, plural(report.num_deleted, "object"),
                human_bytes(double(report.deleted_bytes)));
  for (const KeptObjects& waiting : report.waiting) say_waiting(context, waiting);
  if (report.num_forgotten != 0) {
    context.print("{}forgotten: {}, not seen for a month", would,
                  plural(report.num_forgotten, "replica"));
  }
  if (report.num_temporaries != 0) {
    context.print("{}removed: {} left by killed writers", would,
                  plural(report.num_temporaries, "temporary file"));
  }
  for (const std::string& note : report.notes) context.say("note: " + escape_controls(note));
}

Json to_json(const KeptBecause& because) {
  Json json = {{"why", because.why}};
  if (!because.replica.empty()) json["replica"] = because.replica;
  if (because.until != 0) json["until"] = because.until;
  return json;
}

Json to_json(const GcReport& report, bool dry_run) {
  Json kept = Json::array(), reasons = Json::array(), waiting = Json::array();
  for (const VersionRange& range : report.kept) kept.push_back({range.first, range.last});
  for (const KeptVersions& one : report.reasons) {
    Json json = to_json(one.because);
    json["versions"] = {one.versions.first, one.versions.last};
    json["from"] = one.first;
    reasons.push_back(std::move(json));
  }
  for (const KeptObjects& one : report.waiting) {
    Json json = to_json(one.because);
    json["objects"] = one.num_objects;
    json["bytes"] = one.bytes;
    waiting.push_back(std::move(json));
  }
  return {{"dry_run", dry_run},
          {"head", report.head},
          {"kept", std::move(kept)},
          {"reasons", std::move(reasons)},
          {"removed_versions", report.num_versions},
          {"removed_hop_records", report.num_hops},
          {"noted_objects", report.num_noted},
          {"noted_bytes", report.noted_bytes},
          {"orphans", report.num_orphans},
          {"deleted_objects", report.num_deleted},
          {"deleted_bytes", report.deleted_bytes},
          {"waiting_objects", report.num_waiting},
          {"waiting", std::move(waiting)},
          {"forgotten_replicas", report.num_forgotten},
          {"temporary_files", report.num_temporaries},
          {"notes", report.notes}};
}

Status gc(const Context& context, const GcArguments& options) {
  const Result<uint64_t> grace = parse_duration(options.grace);
  if (!grace.ok()) return Status(grace.status()).at("--grace");
  DW_ASSIGN_OR_RETURN(const Chain chain, open_chain(options.chain));
  GcOptions gc_options;
  gc_options.keep = options.keep;
  gc_options.grace_seconds = int64_t(*grace);
  gc_options.dry_run = options.dry_run;
  gc_options.signed_too = options.is_unsigned;
  DW_ASSIGN_OR_RETURN(const GcReport report, chain.collect_garbage(gc_options));
  say(context, report, options.dry_run);
  context.emit(to_json(report, options.dry_run));
  return {};
}

}  // namespace

void add_gc(Command& app, Context& context, Call* call) {
  Command* verb =
      make_verb(app, context, "gc", "Remove old versions; keep what pins and replicas need",
                "  deltawire gc s3://bucket/run --keep 200 --dry-run\n"
                "  deltawire gc s3://bucket/run --keep 200 --grace 6h   call it regularly");
  auto* const options = set_call(verb, context, call, gc);
  add_chain_args(verb, &options->chain);
  add_whole_number(verb, "--keep", &options->keep, "the newest versions to keep, at least 1", 1,
                   9'999'999'999)
      ->required();
  verb->add_option(
      "--grace", options->grace,
      "how long objects stay after their version is removed: 90s, 30m, 6h, 2d (default 1h)");
  verb->add_flag("--dry-run", options->dry_run, "only say what would be done");
  verb->add_flag("--unsigned", options->is_unsigned,
                 "the chain is no longer signed: allow removing signed versions without --trust");
}

}  // namespace deltawire::cli
