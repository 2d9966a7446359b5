#include "cli/inspect/inspect.h"

#include <fmt/format.h>

#include <algorithm>

#include "bridge/bridge.h"
#include "cli/table.h"
#include "cli/verbs.h"
#include "delta/delta_reader.h"
#include "tensor/text.h"

namespace deltawire::cli {

namespace {

Json foreign_json(const ForeignSummary& summary) {
  Json json = {{"version", summary.version}, {"full", summary.full}};
  json["base"] = or_null(summary.base);
  json["encoding"] = summary.encoding;
  json["checksum"] = summary.checksum;
  json["tensors"] = summary.num_tensors;
  json["files"] = summary.num_files;
  json["bytes"] = summary.file_bytes;
  return json;
}

std::string or_none(const std::string& text) { return text.empty() ? "none" : text; }

Status inspect_version(const Context& context, const InspectOptions& options,
                       const ForeignPath& path, const ForeignSummary& summary) {
  std::vector<ForeignTensorSummary> tensors;
  for (const ForeignTensorSummary& tensor : summary.tensors) {
    if (options.tensor.empty() || options.tensor == tensor.name) tensors.push_back(tensor);
  }
  if (tensors.empty() && !options.tensor.empty()) {
    return not_found(options.path + ": no change of a tensor " + quote(options.tensor));
  }
  Json json = {{"kind", "foreign version"}, {"dialect", path.dialect}, {"path", options.path}};
  json.update(foreign_json(summary));
  json["tensor_list"] = Json::array();
  for (const ForeignTensorSummary& tensor : tensors) {
    json["tensor_list"].push_back(
        {{"name", tensor.name}, {"form", tensor.form}, {"bytes", tensor.payload_bytes}});
  }
  context.emit(json);
  context.print("dialect     {}: {}", path.dialect, path.title);
  context.print("version     {}, {}", summary.version,
                summary.full   ? "whole"
                : summary.base ? fmt::format("onto version {}", *summary.base)
                               : "onto the one before");
  context.print("encoding    {}, checksum {}", or_none(summary.encoding),
                or_none(summary.checksum));
  context.print("files       {}, {}", summary.num_files, human_bytes(double(summary.file_bytes)));
  context.print("tensors     {}", human_count(summary.num_tensors));
  std::ranges::stable_sort(tensors, std::greater(), &ForeignTensorSummary::payload_bytes);
  if (tensors.empty()) return {};
  const size_t listed =
      say_listed(context, tensors.size(), options.all, "Tensors, largest first", "largest tensors");
  const bool has_form = !tensors[0].form.empty();
  std::vector<Table::Column> columns = {{"bytes"}, {"tensor", false}};
  if (has_form) columns.insert(columns.begin() + 1, Table::Column{"form", false});
  Table table(columns);
  for (size_t i = 0; i < listed; ++i) {
    std::vector<std::string> row = {human_bytes(double(tensors[i].payload_bytes)),
                                    shown(tensors[i].name)};
    if (has_form) row.insert(row.begin() + 1, tensors[i].form);
    table.add(std::move(row));
  }
  table.say(context);
  return {};
}

}  // namespace

Status inspect_foreign(const Context& context, const InspectOptions& options,
                       const ForeignPath& path) {
  if (path.version) {
    DW_ASSIGN_OR_RETURN(const ForeignSummary summary, describe_foreign(path, *path.version));
    return inspect_version(context, options, path, summary);
  }
  DW_ASSIGN_OR_RETURN(const std::vector<uint64_t> versions, foreign_versions(path));
  Json list = Json::array();
  Table table({{"version"},
               {"onto"},
               {"encoding", false},
               {"checksum", false},
               {"tensors"},
               {"files"},
               {"bytes"}});
  for (const uint64_t version : versions) {
    DW_ASSIGN_OR_RETURN(const ForeignSummary summary, describe_foreign(path, version));
    list.push_back(foreign_json(summary));
    table.add({std::to_string(version),
               summary.full   ? "whole"
               : summary.base ? std::to_string(*summary.base)
                              : "",
               summary.encoding, summary.checksum, human_count(summary.num_tensors),
               human_count(summary.num_files), human_bytes(double(summary.file_bytes))});
  }
  context.emit({{"kind", "foreign versions"},
                {"dialect", path.dialect},
                {"path", options.path},
                {"versions", list}});
  context.print("dialect     {}: {}", path.dialect, path.title);
  context.print("versions    {}", versions.size());
  if (versions.empty()) return {};
  context.say("");
  table.say(context);
  return {};
}

namespace {

Status inspect(const Context& context, const InspectOptions& options) {
  if (looks_like_delta(options.path)) return inspect_delta(context, options);
  DW_ASSIGN_OR_RETURN(const auto foreign, recognise_foreign(options.path));
  if (foreign) return inspect_foreign(context, options, *foreign);
  return inspect_checkpoint(context, options);
}

}  // namespace

void add_inspect(Command& app, Context& context, Call* call) {
  Command* verb = make_verb(app, context, "inspect",
                            "Show what is in a checkpoint or a delta, also of slime or TRL",
                            "  deltawire inspect delta.safetensors\n"
                            "  deltawire inspect ckpt-1/ --tensor model.norm.weight --json\n"
                            "  deltawire inspect deltas/                  all versions, of slime\n"
                            "  deltawire inspect deltas/weight_v000012    one of them");
  auto* const options = set_call(verb, context, call, inspect);
  verb->add_option("PATH", options->path,
                   "a checkpoint or a delta: a .safetensors file or a folder")
      ->required();
  verb->add_option("--tensor", options->tensor, "look at this tensor only");
  verb->add_flag("--all", options->all, "list every tensor, not just the 20 largest");
}

}  // namespace deltawire::cli
