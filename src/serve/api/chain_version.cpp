// What a ChainWatch answers about one version: docs/api.md.
#include <algorithm>
#include <cstdio>
#include <map>

#include "base/clock.h"
#include "codec/codec.h"
#include "serve/api/answers.h"
#include "serve/api/chain_watch.h"

namespace deltawire {
namespace {

constexpr size_t kMostListed = 1000, kMostTensors = 10'000, kUsualTensors = 200;

struct TensorChanges {
  uint64_t num_changed = 0, payload_bytes = 0;
  std::string_view codec;
};

struct CodecSums {
  uint64_t num_tensors = 0, payload_bytes = 0, num_changed = 0;
};

std::string words_of(const Manifest& m) {
  std::string text = "Version " + std::to_string(m.version) + " is ";
  if (m.kind == VersionKind::kFull) {
    text += "stored whole" + (m.reason.empty() ? "" : " (" + m.reason + ")");
  } else {
    text += "a delta onto version " + std::to_string(m.base.value_or(0));
  }
  char rest[200];
  if (m.kind == VersionKind::kDelta && m.elements != 0) {
    std::snprintf(rest, sizeof rest, ": %.3g %% of the weights changed",
                  double(m.changed) / double(m.elements) * 100);
    text += rest;
  }
  std::snprintf(rest, sizeof rest, ", %s in %zu part%s, published in %.1f s.",
                size_text(m.part_bytes()).c_str(), m.parts.size(), m.parts.size() == 1 ? "" : "s",
                double(m.milliseconds) / 1000);
  return text + rest;
}

// What the headers say; none where they cannot be read, or the version is stored whole.
Json add_changes(Store& store, const Manifest& m, std::map<std::string, TensorChanges>* changes) {
  if (m.kind != VersionKind::kDelta) return nullptr;
  const Result<std::vector<EntryRecord>> entries = read_entries(store, m);
  if (!entries.ok()) return nullptr;
  std::map<std::string_view, CodecSums> codecs;
  for (const EntryRecord& record : *entries) {
    TensorChanges& own = (*changes)[record.entry.tensor];
    CodecSums& sums = codecs[find_codec(record.entry.codec)->name()];
    if (own.codec != find_codec(record.entry.codec)->name()) ++sums.num_tensors;
    own.codec = find_codec(record.entry.codec)->name();
    own.num_changed += record.entry.num_changed;
    own.payload_bytes += record.payload_bytes;
    sums.payload_bytes += record.payload_bytes;
    sums.num_changed += record.entry.num_changed;
  }
  Json list = Json::array();
  for (const auto& [name, sums] : codecs) {
    list.push_back({{"name", name},
                    {"tensors", sums.num_tensors},
                    {"bytes", sums.payload_bytes},
                    {"changed", sums.num_changed}});
  }
  std::sort(list.begin(), list.end(),
            [](const Json& a, const Json& b) { return a["bytes"] > b["bytes"]; });
  return list;
}

Json tensors_json(const Schema& schema, const Manifest& m,
                  const std::map<std::string, TensorChanges>& changes, bool is_known, size_t most) {
  std::vector<std::pair<uint64_t, size_t>> order;  // most changed first
  const auto changes_of = [&](size_t i) -> const TensorChanges* {
    const auto found = changes.find(schema.tensors[i].name);
    return found == changes.end() ? nullptr : &found->second;
  };
  for (size_t i = 0; i < schema.tensors.size(); ++i) {
    const TensorChanges* const own = changes_of(i);
    order.emplace_back(UINT64_MAX - (own == nullptr ? 0 : own->num_changed), i);
  }
  most = std::min(most, order.size());
  std::partial_sort(order.begin(), order.begin() + ptrdiff_t(most), order.end());
  Json list = Json::array();
  for (size_t at = 0; at < most; ++at) {
    const size_t i = order[at].second;
    const TensorSpec& tensor = schema.tensors[i];
    const TensorChanges* const own = changes_of(i);
    const uint64_t elements = num_elements(tensor.shape).ok() ? *num_elements(tensor.shape) : 0;
    const uint64_t changed = own == nullptr ? 0 : own->num_changed;
    Json json = tensor_json(tensor);
    json["elements"] = elements;
    json["digest"] = i < m.digests.size() ? Json(m.digests[i].hex()) : Json();
    for (const char* key : {"changed", "share", "codec", "bytes"}) json[key] = nullptr;
    if (is_known) {
      json["changed"] = changed;
      json["share"] = elements == 0 ? 0 : std::min(1.0, double(changed) / double(elements));
      json["bytes"] = own == nullptr ? 0 : own->payload_bytes;
      if (own != nullptr) json["codec"] = own->codec;
    }
    list.push_back(std::move(json));
  }
  return list;
}

}  // namespace

Result<Json> ChainWatch::version(uint64_t number, const Parameters& parameters) {
  std::unique_lock lock(mutex_);
  DW_ASSIGN_OR_RETURN(const Chain chain, this->chain());
  Json also = Json::array(), holders = Json::array();
  for (auto at = merged_.lower_bound({number, 0}); at != merged_.end(); ++at) {
    if (at->first.first != number) break;
    also.push_back({{"base", at->first.second}, {"bytes", at->second}});
  }
  const auto anchor = anchors_.find(number);
  const Json anchor_bytes = anchor == anchors_.end() ? Json() : Json(anchor->second);
  uint64_t num_holders = 0;
  for (const auto& [name, row] : fleet_.rows()) {
    if (row.state == "gone" || row.standing.elsewhere || !row.listed.heartbeat.ok()) continue;
    if (version_of(row.listed.heartbeat->held) != number) continue;
    if (num_holders++ < kMostListed) holders.push_back(row.name());
  }
  lock.unlock();

  size_t most = kUsualTensors;
  if (const auto given = parameters.find("tensors"); given != parameters.end()) {
    if (!parse_number(given->second, &most) || most > kMostTensors) {
      return invalid_argument("tensors: expected 0 to 10000");
    }
  }
  DW_ASSIGN_OR_RETURN(const VersionRecord record, chain.version(number));
  const Manifest& m = record.manifest;
  DW_ASSIGN_OR_RETURN(const Schema schema, chain.schema(m));
  std::map<std::string, TensorChanges> changes;
  Json codecs = add_changes(chain.store(), m, &changes);
  const bool is_full = m.kind == VersionKind::kFull, is_known = !codecs.is_null();
  if (!anchor_bytes.is_null() && !is_full) {
    also.push_back({{"base", nullptr}, {"bytes", anchor_bytes}});
  }
  Json parts = Json::array(), files = Json::array();
  for (size_t i = 0; i < std::min(kMostListed, m.parts.size()); ++i) {
    const PartRef& part = m.parts[i];
    parts.push_back(
        {{"name", part.name}, {"bytes", part.size_bytes}, {"sha256", part.sha256.hex()}});
  }
  for (size_t i = 0; i < std::min(kMostListed, m.files.size()); ++i) {
    const SideFile& file = m.files[i];
    files.push_back(
        {{"name", file.name}, {"bytes", file.size_bytes}, {"sha256", file.sha256.hex()}});
  }
  const bool is_compared = !is_full && m.elements != 0;
  return Json{{"version", m.version},
              {"run", m.run},
              {"created", parse_utc(m.created)},
              {"publisher", m.publisher},
              {"kind", is_full ? "full" : "delta"},
              {"reason", text_or_null(m.reason)},
              {"base", or_null(m.base)},
              {"text", words_of(m)},
              {"seconds", double(m.milliseconds) / 1000},
              {"bytes", m.part_bytes()},
              {"elements", m.elements},
              {"changed", is_compared ? Json(m.changed) : Json()},
              {"share", is_compared ? Json(double(m.changed) / double(m.elements)) : Json()},
              {"manifest", record.digest.hex()},
              {"parent", m.parent ? Json(m.parent->hex()) : Json()},
              {"state_digest", m.state.hex()},
              {"signed_by", text_or_null(m.signed_by)},
              {"checked", !chain.keys().trust.empty()},
              {"quantization", text_or_null(m.quantization)},
              {"origin", text_or_null(m.origin)},
              {"anchor", m.anchor},
              {"anchor_bytes", m.anchor_bytes},
              {"chain_bytes", m.chain_bytes},
              {"codec", m.codec},
              {"codecs", std::move(codecs)},
              {"parts_total", m.parts.size()},
              {"parts", std::move(parts)},
              {"files_total", m.files.size()},
              {"files", std::move(files)},
              {"also", std::move(also)},
              {"tensors_total", schema.tensors.size()},
              {"tensors_changed", is_known ? Json(changes.size()) : Json()},
              {"tensors", tensors_json(schema, m, changes, is_known, most)},
              {"replicas", std::move(holders)},
              {"num_replicas", num_holders}};
}

Result<Json> ChainWatch::plan(uint64_t number) {
  const auto chain = [this] {
    const std::lock_guard lock(mutex_);
    return this->chain();
  }();
  DW_RETURN_IF_ERROR(Status(chain.status()));
  const std::lock_guard one_at_a_time(plan_mutex_);
  DW_ASSIGN_OR_RETURN(const Plan plan, chain->plan({}, number));
  std::map<HopKind, uint64_t> counts;
  Json hops = Json::array();
  for (const Hop& hop : plan.hops) {
    ++counts[hop.kind];
    if (hops.size() == kMostListed) continue;
    hops.push_back({{"kind", hop_kind_name(hop.kind)},
                    {"base", or_null(hop.base)},
                    {"version", hop.version},
                    {"bytes", hop.bytes},
                    {"parts", hop.parts.size()}});
  }
  // Versions that were published whole are anchors, too.
  const bool begins_whole = !plan.hops.empty() && !plan.hops[0].base;
  if (begins_whole && plan.hops[0].kind == HopKind::kVersion) {
    --counts[HopKind::kVersion];
    hops[0]["kind"] = hop_kind_name(HopKind::kAnchor);
  }
  std::string text = "A replica that holds nothing fetches ";
  text += begins_whole ? "version " + std::to_string(plan.hops[0].version) + " whole" : "nothing";
  const auto add = [&](uint64_t count, const std::string& one) {
    if (count == 0) return;
    text += ", " + std::to_string(count) + " " + one + (count == 1 ? "" : "s");
  };
  add(counts[HopKind::kMerged], "merged delta");
  add(counts[HopKind::kVersion], "delta");
  return Json{{"version", number},
              {"bytes", plan.bytes},
              {"text", text + ": " + size_text(plan.bytes) + "."},
              {"all_deltas_bytes", plan.all_deltas_bytes},
              {"hops_total", plan.hops.size()},
              {"hops", std::move(hops)},
              {"notes", plan.notes}};
}

}  // namespace deltawire
