#include <fmt/format.h>

#include <algorithm>
#include <map>

#include "cli/inspect/inspect.h"
#include "cli/table.h"
#include "delta/delta_reader.h"
#include "delta/delta_writer.h"
#include "tensor/text.h"

namespace deltawire::cli {
namespace {

using Entries = std::vector<const Delta::Entry*>;

struct Totals {
  uint64_t num_tensors = 0, num_elements = 0, num_changed = 0, payload_bytes = 0;
  std::string_view last_tensor;

  // Entries come sorted by tensor; the boxes of one are one tensor.
  void add(const Delta::Entry& item) {
    num_tensors += num_tensors == 0 || item.entry.tensor != last_tensor;
    last_tensor = item.entry.tensor;
    num_elements += item.entry.num_elements();
    num_changed += item.entry.num_changed;
    payload_bytes += item.payload.size();
  }
};

// A tensor that is sent whole has no old elements, so none of them "changed".
bool is_whole(const Delta::Entry& item) { return !item.entry.old_digest; }

Json ratio_or_null(bool known, uint64_t a, uint64_t b) {
  return known && b != 0 ? Json(double(a) / double(b)) : Json();
}

std::string codec_name(CodecId id) {
  const Codec* codec = find_codec(id);
  return codec == nullptr ? "unknown" : std::string(codec->name());
}

// Lists codecs; tensors that are sent whole are listed separately.
std::map<std::pair<CodecId, bool>, Totals> by_codec(const Entries& entries) {
  std::map<std::pair<CodecId, bool>, Totals> totals;
  for (const Delta::Entry* item : entries) totals[{item->entry.codec, is_whole(*item)}].add(*item);
  return totals;
}

Totals add_up(const Entries& entries, bool whole) {
  Totals total;
  for (const Delta::Entry* item : entries) {
    if (is_whole(*item) == whole) total.add(*item);
  }
  return total;
}

void say_changed(const Context& context, const Entries& entries) {
  const Totals patched = add_up(entries, false), whole = add_up(entries, true);
  if (entries.empty()) context.say("changed   nothing");
  if (patched.num_tensors != 0) {
    context.print("changed   {} of the {} elements of {} ({})", human_count(patched.num_changed),
                  human_count(patched.num_elements), plural(patched.num_tensors, "changed tensor"),
                  percent(ratio(patched.num_changed, patched.num_elements)));
  }
  if (whole.num_tensors != 0) {
    context.print("whole     {}, new or of another dtype or shape, {}",
                  plural(whole.num_tensors, "tensor"), human_bytes(double(whole.payload_bytes)));
  }
}

uint64_t payload_bytes(const Delta& delta) {
  uint64_t bytes = 0;
  for (const Delta::Entry& item : delta.entries) bytes += item.payload.size();
  return bytes;
}

void say_summary(const Context& context, const InspectOptions& options, const Delta& delta,
                 const Entries& entries) {
  const uint64_t payloads = payload_bytes(delta);
  context.print("delta     {}, format {}", shown_path(options.path), kDeltaFormat);
  if (delta.num_siblings != 0) {
    context.print("part      one of {}; give the folder to see them all", delta.num_siblings);
  }
  context.print("base      {}", delta.info.base.hex());
  context.print("target    {}", delta.info.has_target() ? delta.info.target.hex() : "-");
  context.print("size      {} in {}: {} of payloads, {} of headers",
                human_bytes(double(delta.size_bytes)), plural(delta.files.size(), "part"),
                human_bytes(double(payloads)), human_bytes(double(delta.size_bytes - payloads)));
  say_changed(context, entries);
  for (const std::string& name : delta.info.removed) {
    context.print("removed   {}", shown(name));
  }
}

void say_codecs(const Context& context, const Entries& entries) {
  if (entries.empty()) return;
  Table table({{"codec", false}, {"tensors"}, {"changed"}, {"bytes"}, {"per change"}});
  for (const auto& [kind, total] : by_codec(entries)) {
    const auto& [codec, whole] = kind;
    table.add({codec_name(codec) + (whole ? " (whole)" : ""), human_count(total.num_tensors),
               whole ? "-" : human_count(total.num_changed),
               human_bytes(double(total.payload_bytes)),
               whole ? "-" : fmt::format("{:.3f}", ratio(total.payload_bytes, total.num_changed))});
  }
  context.say("");
  table.say(context);
}

std::string name_of(const DeltaEntry& entry) {
  std::string name = shown(entry.tensor);
  if (!entry.box.whole()) name += " [" + box_to_string(entry.box) + "]";
  if (!entry.old_digest) name += " (whole)";
  return name;
}

void say_entries(const Context& context, Entries entries, bool all) {
  if (entries.empty()) return;
  std::stable_sort(entries.begin(), entries.end(), [](const auto* a, const auto* b) {
    return a->payload.size() > b->payload.size();
  });
  const size_t listed = say_listed(context, entries.size(), all, "Tensors, largest payload first",
                                   "largest payloads");
  Table table({{"bytes"},
               {"changed"},
               {"density"},
               {"per change"},
               {"codec", false},
               {"dtype", false},
               {"shape", false},
               {"tensor", false},
               {"", false}});
  const double most = double(entries[0]->payload.size());
  for (size_t i = 0; i < listed; ++i) {
    const DeltaEntry& entry = entries[i]->entry;
    const uint64_t bytes = entries[i]->payload.size();
    const bool whole = is_whole(*entries[i]);
    table.add({human_bytes(double(bytes)), whole ? "-" : human_count(entry.num_changed),
               whole ? "-" : percent(ratio(entry.num_changed, entry.num_elements())),
               whole ? "-" : fmt::format("{:.3f}", ratio(bytes, entry.num_changed)),
               codec_name(entry.codec), std::string(dtype_name(entry.dtype)),
               shape_to_string(entry.shape), name_of(entry),
               bar(context, most == 0 ? 0 : double(bytes) / most, 10)});
  }
  table.say(context);
}

Json to_json(const Delta::Entry& item) {
  const DeltaEntry& entry = item.entry;
  Json json = {{"tensor", entry.tensor},
               {"dtype", dtype_name(entry.dtype)},
               {"shape", entry.shape},
               {"codec", codec_name(entry.codec)},
               {"whole", is_whole(item)},
               {"elements", entry.num_elements()},
               {"changed", is_whole(item) ? Json() : Json(entry.num_changed)},
               {"density", ratio_or_null(!is_whole(item), entry.num_changed, entry.num_elements())},
               {"bytes", item.payload.size()},
               {"bytes_per_changed",
                ratio_or_null(!is_whole(item), item.payload.size(), entry.num_changed)}};
  if (!entry.box.whole())
    json["box"] = {{"offset", entry.box.offset}, {"extent", entry.box.extent}};
  if (entry.old_digest) json["old_digest"] = entry.old_digest->hex();
  json["new_digest"] = entry.new_digest.hex();
  return json;
}

Json to_json(const InspectOptions& options, const Delta& delta, const Entries& entries) {
  const Totals patched = add_up(entries, false), whole_tensors = add_up(entries, true);
  Json parts = Json::array(), codecs = parts, list = parts;
  for (const auto& file : delta.files) {
    parts.push_back({{"name", file->path().filename().string()}, {"bytes", file->bytes().size()}});
  }
  for (const auto& [kind, one] : by_codec(entries)) {
    const auto& [codec, whole] = kind;
    codecs.push_back(
        {{"codec", codec_name(codec)},
         {"whole", whole},
         {"tensors", one.num_tensors},
         {"changed", whole ? Json() : Json(one.num_changed)},
         {"bytes", one.payload_bytes},
         {"bytes_per_changed", ratio_or_null(!whole, one.payload_bytes, one.num_changed)}});
  }
  for (const Delta::Entry* item : entries) list.push_back(to_json(*item));
  return {{"kind", "delta"},
          {"path", options.path},
          {"format", kDeltaFormat},
          {"base", delta.info.base.hex()},
          {"target", delta.info.target.hex()},
          {"bytes", delta.size_bytes},
          {"header_bytes", delta.size_bytes - payload_bytes(delta)},
          {"elements", patched.num_elements},
          {"changed", patched.num_changed},
          {"whole_bytes", whole_tensors.payload_bytes},
          {"removed", delta.info.removed},
          {"one_part_of", delta.num_siblings == 0 ? Json() : Json(delta.num_siblings)},
          {"parts", parts},
          {"codecs", codecs},
          {"tensor_list", list}};
}

}  // namespace

Status inspect_delta(const Context& context, const InspectOptions& options) {
  DW_ASSIGN_OR_RETURN(const Delta delta, open_delta(options.path));
  Entries entries;
  for (const Delta::Entry& item : delta.entries) {
    if (options.tensor.empty() || options.tensor == item.entry.tensor) entries.push_back(&item);
  }
  if (entries.empty() && !options.tensor.empty()) {
    return not_found(options.path + ": no change of a tensor " + quote(options.tensor));
  }
  DW_RETURN_IF_ERROR(check_interrupted());
  DW_RETURN_IF_ERROR(delta.check_unchanged());
  if (context.json) context.emit(to_json(options, delta, entries));
  say_summary(context, options, delta, entries);
  say_codecs(context, entries);
  say_entries(context, entries, options.all);
  return {};
}

}  // namespace deltawire::cli
