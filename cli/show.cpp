// Everything that the records say about one version.
#include <fmt/format.h>

#include "cli/chain_args.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/units.h"
#include "cli/verbs.h"
#include "publish/record.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

using Json = nlohmann::ordered_json;

struct ShowArguments {
  ChainArgs chain;
  uint64_t version = 0;
  bool tensors = false;
};

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

void say(const Context& context, const Shown& shown_version, bool tensors) {
  const Manifest& m = shown_version.record.manifest;
  const bool full = m.kind == VersionKind::kFull;
  const auto line = [&](const char* key, const std::string& value) {
    context.say(fmt::format("{:<10} {}", key, value));
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
    const Schema::Tensor& tensor = shown_version.schema.tensors[i];
    table.add({shown(tensor.name), std::string(dtype_name(tensor.dtype)),
               shape_to_string(tensor.shape), m.digests[i].hex()});
  }
  context.say("");
  table.say(context);
}

template <class T>
Json or_null(const std::optional<T>& value) {
  return value ? Json(*value) : Json();
}

Json to_json(const Shown& shown_version) {
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
    const Schema::Tensor& tensor = shown_version.schema.tensors[i];
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

int show(const Context& context, const ShowArguments& options) {
  const Result<Chain> chain = open_chain(options.chain);
  if (!chain.ok()) return context.fail(chain.status());
  const Result<Shown> result = look_at(*chain, options.version);
  if (!result.ok()) return context.fail(result.status());
  say(context, *result, options.tensors);
  if (context.json) context.emit(to_json(*result));
  return context.succeed();
}

}  // namespace

void add_show(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(app, context, "show", "Show what the records say about one version",
                            "  deltawire show s3://bucket/run 12\n"
                            "  deltawire show store 12 --tensors");
  auto options = std::make_shared<ShowArguments>();
  add_chain_args(verb, &options->chain);
  add_version(verb, "VERSION", &options->version, "its number")->required();
  verb->add_flag("--tensors", options->tensors, "list tensors and their digests");
  verb->callback([&context, call, options] {
    *call = [&context, options] { return show(context, *options); };
  });
}

}  // namespace deltawire::cli
