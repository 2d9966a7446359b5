// One line per version, newest first.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/thread_pool.h"
#include "cli/chain_args.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/units.h"
#include "cli/verbs.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

using Json = nlohmann::ordered_json;

constexpr unsigned kRequests = 8;  // at once: a store has latency
constexpr size_t kWave = 64;       // versions that are read before they are shown

struct LogArguments {
  ChainArgs chain;
  uint64_t count = 20;
};

// What is noteworthy about a version beside its numbers.
struct Marks {
  std::set<uint64_t> pinned, anchored;
};

Result<Marks> marks_of(const Chain& chain, uint64_t first, uint64_t last) {
  Marks marks;
  DW_ASSIGN_OR_RETURN(const std::vector<uint64_t> pins, chain.pins());
  marks.pinned.insert(pins.begin(), pins.end());
  DW_ASSIGN_OR_RETURN(const auto hops, chain.added_hops(first, last));
  for (const AddedHop& hop : hops) {
    if (!hop.base) marks.anchored.insert(hop.version);
  }
  return marks;
}

// Of a delta; none where nothing could be compared.
std::string density_text(const Manifest& m) {
  if (m.kind == VersionKind::kFull || m.elements == 0) return "-";
  return percent(double(m.changed) / double(m.elements));
}

// Whether tensors came, went or changed their form since the version before, if that is there.
bool changes_schema(const Manifest& m, const Result<VersionRecord>& before) {
  return m.version != 0 && before.ok() && before->manifest.schema != m.schema;
}

Json to_json(const Manifest& m, const Marks& marks, bool schema_changed) {
  Json json = {{"version", m.version},
               {"created", m.created},
               {"publisher", m.publisher},
               {"kind", m.kind == VersionKind::kFull ? "full" : "delta"}};
  if (!m.reason.empty()) json["reason"] = m.reason;
  json["parts"] = m.parts.size();
  json["bytes"] = m.part_bytes();
  json["elements"] = m.elements;
  json["changed"] = m.changed;
  json["codec"] = m.codec;
  json["seconds"] = double(m.milliseconds) / 1000;
  json["anchor"] = marks.anchored.contains(m.version) || m.kind == VersionKind::kFull;
  json["pinned"] = marks.pinned.contains(m.version);
  json["schema_changed"] = schema_changed;
  return json;
}

std::vector<std::string> to_row(const Manifest& m, const Marks& marks, bool schema_changed) {
  const bool full = m.kind == VersionKind::kFull;
  std::string remarks = full && !m.reason.empty() ? shown(m.reason) : "";
  const auto remark = [&](bool wanted, const char* text) {
    if (wanted) remarks += (remarks.empty() ? "" : ", ") + std::string(text);
  };
  remark(schema_changed, "schema changed");
  remark(marks.anchored.contains(m.version), "anchor");
  remark(marks.pinned.contains(m.version), "pinned");
  return {std::to_string(m.version),
          shown(m.created),
          full ? "full" : "delta",
          human_count(m.parts.size()),
          human_bytes(double(m.part_bytes())),
          density_text(m),
          full ? "-" : shown(m.codec),
          seconds(double(m.milliseconds) / 1000),
          remarks};
}

bool is_damaged(const Status& status) {
  return status.code() == Code::kCorruption || status.code() == Code::kUnsupported;
}

// A record that cannot be shown: the others still can.
std::vector<std::string> damaged_row(uint64_t version, const Status& why) {
  return {std::to_string(version),         "-", "DAMAGED", "-", "-", "-", "-", "-",
          escape_controls(why.to_string())};
}

int log(const Context& context, const LogArguments& options) {
  const Result<Chain> chain = open_chain(options.chain);
  if (!chain.ok()) return context.fail(chain.status());
  const Result<uint64_t> head = head_of(*chain);
  if (!head.ok()) return context.fail(head.status());
  const uint64_t count = options.count == 0 ? *head + 1 : std::min(options.count, *head + 1);
  const uint64_t first = *head + 1 - count;
  const Result<Marks> marks = marks_of(*chain, first, *head);
  if (!marks.ok()) return context.fail(marks.status());

  Table table({{"version"},
               {"created", false},
               {"kind", false},
               {"parts"},
               {"bytes"},
               {"changed"},
               {"codec", false},
               {"time"},
               {"", false}});
  Json versions = Json::array();
  Code damage = Code::kOk;
  ThreadPool pool(kRequests);
  for (uint64_t left = count; left > 0;) {
    const size_t wave = size_t(std::min<uint64_t>(left, kWave));
    // And the one before them: its schema is compared with.
    std::vector<Result<VersionRecord>> records(wave + 1, not_found("no such version"));
    pool.parallel_for(wave + 1, [&](size_t i, unsigned) {
      if (first + left > i) records[i] = chain->version(first + left - 1 - i);
    });
    for (size_t i = 0; i < wave; ++i) {
      const Result<VersionRecord>& record = records[i];
      const uint64_t version = first + left - 1 - i;
      if (!record.ok() && record.status().code() == Code::kNotFound) continue;  // pruned
      if (!record.ok() && is_damaged(record.status())) {
        damage = record.status().code();
        table.add(damaged_row(version, record.status()));
        versions.push_back({{"version", version}, {"error", record.status().to_string()}});
        continue;
      }
      if (!record.ok()) return context.fail(record.status());
      const bool schema_changed = changes_schema(record->manifest, records[i + 1]);
      table.add(to_row(record->manifest, *marks, schema_changed));
      versions.push_back(to_json(record->manifest, *marks, schema_changed));
    }
    left -= wave;
  }
  table.say(context);
  context.emit({{"run", chain->run()}, {"head", *head}, {"versions", std::move(versions)}});
  return int(damage);
}

}  // namespace

void add_log(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(app, context, "log", "List the versions of a chain, newest first",
                            "  deltawire log s3://bucket/run\n"
                            "  deltawire log store -n 100 --json");
  auto options = std::make_shared<LogArguments>();
  add_chain_args(verb, &options->chain);
  add_whole_number(verb, "-n,--count", &options->count, "versions to list (default 20; 0: all)", 0,
                   UINT64_MAX);
  verb->callback([&context, call, options] {
    *call = [&context, options] { return log(context, *options); };
  });
}

}  // namespace deltawire::cli
