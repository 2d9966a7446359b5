// What a ChainWatch answers: docs/api.md.
#include <algorithm>
#include <chrono>
#include <cmath>

#include "base/clock.h"
#include "serve/api/answers.h"
#include "serve/api/chain_watch.h"

namespace deltawire {
namespace {

constexpr uint64_t kMostCells = 400'000;  // of a heat map
constexpr size_t kMostRows = 2000;
constexpr uint64_t kOneUlpVersions = 16;  // whose payloads are looked at, of one tensor

// A share needs no more digits than can be seen.
Json rounded(const std::optional<double>& value, double digits = 1e8) {
  return value ? Json(std::round(*value * digits) / digits) : Json();
}

// At most so many entries of a map by version, evenly over a range.
template <typename Map, typename Key, typename Take>
void thin_out(const Map& map, uint64_t from, uint64_t to, uint64_t most, const Key& key_of,
              const Take& take) {
  const double stride = std::max(1.0, double(to - from + 1) / double(most));
  for (auto at = map.lower_bound(key_of(from)); at != map.end();) {
    const uint64_t version = take(at, to);
    if (version > to) return;
    const uint64_t slot = uint64_t(double(version - from) / stride);
    const auto next =
        map.lower_bound(key_of(from + uint64_t(std::ceil(double(slot + 1) * stride))));
    at = stride == 1 ? std::next(at) : next;
  }
}

}  // namespace

Json ChainWatch::loading() const {
  if (!head_) return {{"done", 0}, {"total", 0}};
  const uint64_t total = head_->version - std::min(head_->version, floor_) + 1;
  const uint64_t left = next_ && *next_ >= floor_ ? *next_ - floor_ + 1 : 0;
  return {{"done", total - std::min(total, left)}, {"total", total}};
}

Json ChainWatch::summary() {
  const std::lock_guard lock(mutex_);
  return {{"id", id_},
          {"store", store_->url()},
          {"run", chain_ ? Json(chain_->run()) : Json()},
          {"first", or_null(first_)},
          {"head", head_ ? Json(head_->version) : Json()},
          {"head_created", or_null(head_created())},
          {"replicas", fleet_.rows().size()},
          {"state", health_.state},
          {"text", health_.text},
          {"loading", loading()}};
}

Json ChainWatch::health() const {
  Json problems = Json::array();
  for (const HealthProblem& one : health_.problems) {
    problems.push_back({{"state", one.state},
                        {"text", one.text},
                        {"advice", one.advice},
                        {"replicas", one.replicas},
                        {"num_replicas", one.num_replicas},
                        {"since", or_null(one.since)}});
  }
  return {{"state", health_.state},
          {"time", unix_seconds_now()},
          {"text", health_.text},
          {"advice", text_or_null(health_.advice)},
          {"run", chain_ ? Json(chain_->run()) : Json()},
          {"head", head_ ? Json(head_->version) : Json()},
          {"head_created", or_null(head_created())},
          {"publish_interval", rounded(health_.publish_interval, 1e3)},
          {"catch_up_seconds", rounded(health_.catch_up_seconds, 1e3)},
          {"counts", fleet_.counts()},
          {"problems", std::move(problems)},
          {"loading", loading()}};
}

Json ChainWatch::fleet(std::optional<uint64_t> since) const {
  Json json = fleet_.to_json(since);
  json["time"] = unix_seconds_now();
  json["head"] = head_ ? Json(head_->version) : Json();
  return json;
}

Result<VersionGrid> ChainWatch::grid_of(const Parameters& parameters, uint64_t usual, uint64_t most,
                                        uint64_t* from, uint64_t* to) const {
  DW_ASSIGN_OR_RETURN(const uint64_t points, number_in(parameters, "points", usual, 1, most));
  DW_ASSIGN_OR_RETURN(const auto first, number_in(parameters, "from"));
  DW_ASSIGN_OR_RETURN(const auto last, number_in(parameters, "to"));
  if (!head_) return VersionGrid();
  *to = std::min(last.value_or(head_->version), head_->version);
  *from = std::min(std::max(first.value_or(0), first_.value_or(0)), *to);
  return VersionGrid::over(*from, *to, points);
}

Result<Json> ChainWatch::versions(const Parameters& parameters) const {
  uint64_t from = 0, to = 0;
  DW_ASSIGN_OR_RETURN(const VersionGrid grid, grid_of(parameters, 500, 4000, &from, &to));
  Json columns;
  for (const char* name :
       {"version", "count", "bytes", "share", "seconds", "created", "full", "failed"}) {
    columns[name] = Json::array();
  }
  const Json none;
  for (size_t i = 0; i < grid.num_columns; ++i) {
    const VersionSums* const sums = history_.column(grid, i);
    const bool any = sums != nullptr && sums->num_versions > 0;
    columns["version"].push_back(grid.begin(i));
    columns["count"].push_back(any ? sums->num_versions : 0);
    columns["bytes"].push_back(any ? Json(sums->bytes) : none);
    columns["share"].push_back(
        any && sums->num_deltas > 0 ? rounded(sums->shares / sums->num_deltas) : none);
    columns["seconds"].push_back(
        any ? rounded(double(sums->milliseconds) / 1000 / sums->num_versions, 1e3) : none);
    columns["created"].push_back(any ? Json(sums->created) : none);
    columns["full"].push_back(any ? Json(sums->num_full) : none);
    columns["failed"].push_back(any && sums->num_watched > 0 ? Json(sums->num_failed) : none);
  }
  Json anchors = Json::array(), merged = Json::array(), replicas = Json::array();
  const uint64_t most = std::max<uint64_t>(1, grid.num_columns);
  thin_out(
      anchors_, from, to, most, [](uint64_t version) { return version; },
      [&](auto at, uint64_t last) {
        if (at->first <= last) anchors.push_back({{"version", at->first}, {"bytes", at->second}});
        return at->first;
      });
  thin_out(
      merged_, from, to, most, [](uint64_t version) { return std::pair(version, uint64_t{0}); },
      [&](auto at, uint64_t last) {
        if (at->first.first <= last) {
          merged.push_back(
              {{"base", at->first.second}, {"version", at->first.first}, {"bytes", at->second}});
        }
        return at->first.first;
      });
  std::map<uint64_t, uint64_t> held;
  for (const auto& [name, row] : fleet_.rows()) {
    if (row.state == "gone" || row.standing.elsewhere || !row.listed.heartbeat.ok()) continue;
    const auto version = version_of(row.listed.heartbeat->held);
    if (version && *version >= from && *version <= to) ++held[*version];
  }
  for (const auto& [version, count] : held) {
    replicas.push_back({{"version", version}, {"count", count}});
  }
  return Json{{"from", from},
              {"to", to},
              {"step", grid.step},
              {"first", or_null(first_)},
              {"head", head_ ? Json(head_->version) : Json()},
              {"loading", loading()},
              {"columns", std::move(columns)},
              {"anchors", std::move(anchors)},
              {"merged", std::move(merged)},
              {"anchors_total", anchors_.size()},
              {"merged_total", merged_.size()},
              {"replicas", std::move(replicas)}};
}

std::vector<uint64_t> ChainWatch::want(const VersionGrid& grid, Json* answer) {
  const std::vector<uint64_t> samples = layers_.samples(grid, first_.value_or(0), head_->version);
  const std::vector<uint64_t> missing = layers_.missing(samples);
  (*answer)["loading"] = {{"done", samples.size() - missing.size()}, {"total", samples.size()}};
  wanted_ = missing;
  if (!missing.empty()) work_.notify_all();
  return samples;
}

std::optional<double> ChainWatch::want_one_ulp(const std::string& tensor, uint64_t from,
                                               uint64_t to, Json* answer) {
  const VersionGrid few = VersionGrid::over(from, to, kOneUlpVersions);  // the same ones each time
  std::vector<double> known;
  one_ulp_of_ = tensor;
  wanted_one_ulp_.clear();
  for (size_t i = 0; i < few.num_columns; ++i) {
    const uint64_t version = std::max(few.begin(i), from);
    const std::optional<double>* const share = layers_.find_one_ulp(tensor, version);
    if (share == nullptr) {
      wanted_one_ulp_.push_back(version);
    } else if (*share) {
      known.push_back(**share);
    }
  }
  Json& loading = (*answer)["loading"];
  loading["total"] = loading["total"].get<uint64_t>() + few.num_columns;
  loading["done"] = loading["done"].get<uint64_t>() + few.num_columns - wanted_one_ulp_.size();
  if (!wanted_one_ulp_.empty()) work_.notify_all();
  if (known.empty()) return {};
  const auto middle = known.begin() + ptrdiff_t(known.size() / 2);
  std::nth_element(known.begin(), middle, known.end());
  return *middle;
}

Result<Json> ChainWatch::layers(const Parameters& parameters) {
  std::unique_lock lock(mutex_);
  DW_ASSIGN_OR_RETURN(const Chain chain, this->chain());
  if (!head_) return not_found("no version was published yet");
  if (!layers_.has_schema(head_->schema)) {
    const Manifest head = *head_;
    lock.unlock();
    DW_ASSIGN_OR_RETURN(const Schema schema, chain.schema(head));
    lock.lock();
    if (!layers_.has_schema(head.schema)) layers_.set_schema(head.schema, schema);
  }
  if (!head_) return unavailable("the store holds another run by now");
  DW_ASSIGN_OR_RETURN(const auto row, number_in(parameters, "row"));
  const std::vector<LayerShares::Row>& rows = layers_.rows();
  if (row && *row >= rows.size()) return not_found("there is no such row");
  const size_t num_rows =
      std::min(kMostRows, std::max<size_t>(1, row ? rows[*row].tensors.size() : rows.size()));
  Parameters fewer = parameters;
  DW_ASSIGN_OR_RETURN(uint64_t points, number_in(parameters, "points", 200, 1, 1000));
  fewer["points"] = std::to_string(std::min<uint64_t>(points, kMostCells / num_rows));
  uint64_t from = 0, to = 0;
  DW_ASSIGN_OR_RETURN(const VersionGrid grid, grid_of(fewer, 200, 1000, &from, &to));
  Json json = {{"from", from},
               {"to", to},
               {"step", grid.step},
               {"row", row ? Json(std::to_string(*row)) : Json()},
               {"first", or_null(first_)},
               {"head", head_->version},
               {"rows_total", row ? rows[*row].tensors.size() : rows.size()}};
  const std::vector<uint64_t> samples = want(grid, &json);
  std::vector<std::vector<uint32_t>> groups;
  Json shown = Json::array();
  for (size_t i = 0; i < num_rows && !rows.empty(); ++i) {
    const LayerShares::Row& own = row ? rows[*row] : rows[i];
    groups.push_back(row ? std::vector{own.tensors[i]} : own.tensors);
    const uint32_t first = groups.back()[0];
    const bool is_one = groups.back().size() == 1;
    const Json tensor = is_one ? Json(layers_.tensors()[first].name) : Json();
    shown.push_back(
        {{"id", row ? std::to_string(*row) + "." + std::to_string(i) : std::to_string(i)},
         {"name", is_one ? tensor : Json(own.name)},
         {"tensor", tensor},
         {"type", own.type},
         {"layer", or_null(own.layer)},
         {"tensors", groups.back().size()},
         {"elements", is_one ? layers_.elements(first) : own.elements}});
  }
  std::vector<uint32_t> counts;
  const auto shares = layers_.shares(grid, samples, groups, &counts);
  lock.unlock();  // what follows may have 400,000 numbers
  for (size_t i = 0; i < shares.size(); ++i) {
    Json& values = shown[i]["share"] = Json::array();
    for (const std::optional<double>& share : shares[i]) values.push_back(rounded(share));
  }
  Json& versions = json["version"] = Json::array();
  for (size_t i = 0; i < grid.num_columns; ++i) versions.push_back(grid.begin(i));
  json["count"] = counts;
  json["rows"] = std::move(shown);
  return json;
}

Result<Json> ChainWatch::tensor(const std::string& name, const Parameters& parameters) {
  Parameters none = {{"points", "1"}};
  DW_RETURN_IF_ERROR(layers(none).status());  // the schema is there
  const std::lock_guard lock(mutex_);
  const std::optional<uint32_t> number = layers_.find(name);
  if (!number || !head_) return not_found("the newest version has no such tensor");
  uint64_t from = 0, to = 0;
  DW_ASSIGN_OR_RETURN(const VersionGrid grid, grid_of(parameters, 500, 4000, &from, &to));
  Json json = tensor_json(layers_.tensors()[*number]);
  const std::vector<uint64_t> samples = want(grid, &json);
  const std::optional<double> one_ulp = want_one_ulp(name, from, to, &json);
  std::vector<uint32_t> counts;
  const auto shares = layers_.shares(grid, samples, {{*number}}, &counts);
  const double elements = double(layers_.elements(*number));
  Json columns = {{"version", Json::array()},
                  {"count", counts},
                  {"share", Json::array()},
                  {"changed", Json::array()}};
  for (size_t i = 0; i < grid.num_columns; ++i) {
    const std::optional<double>& share = shares[0][i];
    columns["version"].push_back(grid.begin(i));
    columns["share"].push_back(rounded(share));
    columns["changed"].push_back(share ? rounded(*share * elements, 1e1) : Json());
  }
  json.update(Json{{"elements", layers_.elements(*number)},
                   {"from", from},
                   {"to", to},
                   {"step", grid.step},
                   {"first", or_null(first_)},
                   {"head", head_->version},
                   {"one_ulp", rounded(one_ulp, 1e3)},
                   {"columns", std::move(columns)}});
  return json;
}

Result<Json> ChainWatch::events(const Parameters& parameters) const {
  DW_ASSIGN_OR_RETURN(const auto since, number_in(parameters, "since"));
  DW_ASSIGN_OR_RETURN(const uint64_t limit, number_in(parameters, "limit", 200, 1, 1000));
  Json list = Json::array();
  for (const ChainEvent& event : events_.after(since.value_or(0), size_t(limit))) {
    list.push_back(to_json(event));
  }
  return Json{{"last", events_.last()}, {"events", std::move(list)}};
}

HttpReply ChainWatch::answer(const std::string& path, const HttpCall& call) {
  constexpr std::string_view kVersions = "/versions/", kTensors = "/tensors/", kPlan = "/plan";
  const auto reply = [](const Result<Json>& json) {
    return json.ok() ? json_reply(200, *json) : failed(json.status());
  };
  const Parameters& parameters = call.parameters;
  if (path == "/stream") return stream(call);
  if (path == "/layers") return reply(layers(parameters));
  if (path.starts_with(kTensors)) return reply(tensor(path.substr(kTensors.size()), parameters));
  if (path.starts_with(kVersions)) {
    std::string_view number = std::string_view(path).substr(kVersions.size());
    const bool wants_plan = number.ends_with(kPlan);
    if (wants_plan) number.remove_suffix(kPlan.size());
    uint64_t version_number = 0;
    if (!parse_number(number, &version_number)) return refuse(400, "a version is a number");
    return reply(wants_plan ? plan(version_number) : version(version_number, parameters));
  }
  const std::lock_guard lock(mutex_);
  if (path == "/health") return json_reply(200, health());
  if (path == "/versions") return reply(versions(parameters));
  if (path == "/events") return reply(events(parameters));
  if (path == "/fleet") {
    const auto since = number_in(parameters, "since");
    return since.ok() ? json_reply(200, fleet(*since)) : failed(since.status());
  }
  return refuse(404, "there is no " + path + "; see docs/api.md");
}

}  // namespace deltawire
