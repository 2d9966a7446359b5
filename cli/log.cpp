// Lists the versions of a chain, newest first, or shows all records of one version.
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "base/thread_pool.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "publish/record.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

constexpr unsigned kRequests = 8;  // at once: a store has latency
constexpr size_t kWave = 64;       // versions that are read before they are shown

struct LogArguments {
  ChainArgs chain;
  std::optional<uint64_t> version;  // show this one
  uint64_t count = 20;
  bool tensors = false;
};

// ---- a list

// Remarks about a version.
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

// The share of changed elements of a delta, if it is known.
std::string density_text(const Manifest& m) {
  if (m.kind == VersionKind::kFull || m.elements == 0) return "-";
  return percent(double(m.changed) / double(m.elements));
}

// Whether tensors were added, removed or changed their form since the previous version, if it
// exists.
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

// Reports a record that cannot be read; the others are still shown.
std::vector<std::string> damaged_row(uint64_t version, const Status& why) {
  return {std::to_string(version),         "-", "DAMAGED", "-", "-", "-", "-", "-",
          escape_controls(why.to_string())};
}

int list_versions(const Context& context, const LogArguments& options) {
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
    // Also the version before them, for its schema.
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

// ---- one version

struct Shown {
  VersionRecord record;
  Schema schema;
  std::vector<AddedHop> hops;  // that lead to it
  std::string schema_change;   // since the version before; empty: none, or that is not there
};

Result<std::string> schema_change_of(const Chain& chain, const Manifest& manifest,
                                     const Schema& schema) {
  if (manifest.version == 0 || !manifest.parent) return std::string();
  const Result<VersionRecord> before = chain.version(manifest.version - 1);
  if (!before.ok() || before->manifest.schema == manifest.schema) return std::string();
  DW_ASSIGN_OR_RETURN(const Schema old, chain.schema(before->manifest));
  return describe_change(old, schema);
}

Result<Shown> look_at(const Chain& chain, uint64_t version) {
  DW_ASSIGN_OR_RETURN(VersionRecord record, chain.version(version));
  DW_ASSIGN_OR_RETURN(Schema schema, chain.schema(record.manifest));
  if (record.manifest.digests.size() != schema.tensors.size()) {
    return corruption(fmt::format("version {}: expected {} digests, one per tensor, got {}",
                                  version, schema.tensors.size(), record.manifest.digests.size()));
  }
  DW_ASSIGN_OR_RETURN(std::vector<AddedHop> hops, chain.added_hops(version, version));
  DW_ASSIGN_OR_RETURN(std::string change, schema_change_of(chain, record.manifest, schema));
  return Shown{std::move(record), std::move(schema), std::move(hops), std::move(change)};
}

std::string hop_text(const AddedHop& hop) {
  return hop.base ? fmt::format("merged delta from version {}", *hop.base) : "anchor";
}

void say_version(const Context& context, const Shown& shown_version, bool tensors) {
  const Manifest& m = shown_version.record.manifest;
  const bool full = m.kind == VersionKind::kFull;
  const auto line = [&](const char* key, const std::string& value) {
    context.print("{:<10} {}", key, value);
  };
  line("version", std::to_string(m.version));
  line("run", m.run);
  line("created", fmt::format("{} by {}, in {}", shown(m.created), shown(m.publisher),
                              seconds(double(m.milliseconds) / 1000)));
  line("kind", full ? "full" + (m.reason.empty() ? "" : ": " + shown(m.reason))
                    : fmt::format("delta onto version {}, codec {}", *m.base, shown(m.codec)));
  if (!m.quantization.empty()) line("quantised", escape_controls(m.quantization));
  if (!m.origin.empty()) line("origin", escape_controls(m.origin));
  if (!full && m.elements != 0) {
    line("changed",
         fmt::format("{} of {} ({})", human_count(m.changed), plural(m.elements, "element"),
                     percent(double(m.changed) / double(m.elements))));
  }
  if (!shown_version.schema_change.empty()) {
    line("schema", escape_controls(shown_version.schema_change));
  }
  line("tensors", human_count(m.digests.size()));
  line("state", m.state.hex());
  line("manifest", shown_version.record.digest.hex());
  line("parent", m.parent ? m.parent->hex() : "none: the seed");
  line("anchor", fmt::format("version {}, {}", m.anchor, human_bytes(double(m.anchor_bytes))));
  for (const AddedHop& hop : shown_version.hops) {
    line("also as", fmt::format("{}, {}", hop_text(hop), human_bytes(double(hop.bytes))));
  }
  for (const PartRef& part : m.parts) {
    line("part", fmt::format("{}  {}", part.name, human_bytes(double(part.size_bytes))));
  }
  for (const SideFile& file : m.files) {
    line("file", fmt::format("{}  {}, sha-256 {}", shown(file.name),
                             human_bytes(double(file.size_bytes)), file.sha256.hex()));
  }
  if (!tensors) return;
  Table table({{"tensor", false}, {"dtype", false}, {"shape", false}, {"digest", false}});
  for (size_t i = 0; i < shown_version.schema.tensors.size(); ++i) {
    const TensorSpec& tensor = shown_version.schema.tensors[i];
    table.add({shown(tensor.name), std::string(dtype_name(tensor.dtype)),
               shape_to_string(tensor.shape), m.digests[i].hex()});
  }
  context.say("");
  table.say(context);
}

Json version_json(const Shown& shown_version) {
  const Manifest& m = shown_version.record.manifest;
  Json hops = Json::array(), tensors = Json::array(), files = Json::array();
  for (const SideFile& file : m.files) {
    files.push_back({{"name", file.name},
                     {"bytes", file.size_bytes},
                     {"sha-256", file.sha256.hex()},
                     {"object", object_of(file)}});
  }
  for (const AddedHop& hop : shown_version.hops) {
    hops.push_back({{"base", or_null(hop.base)}, {"bytes", hop.bytes}});
  }
  for (size_t i = 0; i < shown_version.schema.tensors.size(); ++i) {
    const TensorSpec& tensor = shown_version.schema.tensors[i];
    tensors.push_back({{"name", tensor.name},
                       {"dtype", dtype_name(tensor.dtype)},
                       {"shape", tensor.shape},
                       {"digest", m.digests[i].hex()}});
  }
  Json json = {{"run", m.run},
               {"version", m.version},
               {"kind", m.kind == VersionKind::kFull ? "full" : "delta"},
               {"base", or_null(m.base)}};
  if (!m.reason.empty()) json["reason"] = m.reason;
  if (!shown_version.schema_change.empty()) json["schema_change"] = shown_version.schema_change;
  if (!m.quantization.empty()) json["quantization"] = m.quantization;
  if (!m.origin.empty()) json["origin"] = m.origin;
  json.update(Json{{"created", m.created},
                   {"publisher", m.publisher},
                   {"seconds", double(m.milliseconds) / 1000},
                   {"codec", m.codec},
                   {"elements", m.elements},
                   {"changed", m.changed},
                   {"manifest", shown_version.record.digest.hex()},
                   {"parent", m.parent ? Json(m.parent->hex()) : Json()},
                   {"state", m.state.hex()},
                   {"bytes", m.part_bytes()},
                   {"chain_bytes", m.chain_bytes},
                   {"anchor", m.anchor},
                   {"anchor_bytes", m.anchor_bytes},
                   {"parts", parts_json(m.parts)},
                   {"files", std::move(files)},
                   {"hop_records", std::move(hops)},
                   {"tensors", std::move(tensors)}});
  return json;
}

Status show_version(const Context& context, const LogArguments& options) {
  DW_ASSIGN_OR_RETURN(const Chain chain, open_chain(options.chain));
  DW_ASSIGN_OR_RETURN(const Shown version, look_at(chain, *options.version));
  say_version(context, version, options.tensors);
  if (context.json) context.emit(version_json(version));
  return {};
}

int log(const Context& context, const LogArguments& options) {
  return options.version ? context.finish(show_version(context, options))
                         : list_versions(context, options);
}

}  // namespace

void add_log(Command& app, Context& context, Call* call) {
  Command* verb =
      make_verb(app, context, "log", "List the versions of a chain, or show one of them",
                "  deltawire log s3://bucket/run\n"
                "  deltawire log store -n 100 --json\n"
                "  deltawire log store 12 --tensors");
  auto* const options = set_call(verb, context, call, log);
  add_chain_args(verb, &options->chain);
  Option* const version = add_version(verb, "VERSION", &options->version, "show this version");
  add_whole_number(verb, "-n,--count", &options->count, "versions to list (default 20; 0: all)", 0,
                   UINT64_MAX)
      ->excludes(version);
  verb->add_flag("--tensors", options->tensors, "with VERSION: list tensors and their digests")
      ->needs(version);
}

}  // namespace deltawire::cli
