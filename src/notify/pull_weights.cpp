#include "notify/pull_weights.h"

#include <nlohmann/json.hpp>

#include "base/json.h"
#include "notify/http.h"

namespace deltawire {
namespace {

constexpr std::string_view kPullWeights = "/pull_weights";

Status judge_pull(const HttpReply& reply) {
  if (!reply.ok()) return HttpClient::failure("POST", kPullWeights, reply);
  const nlohmann::json answer = parse_json(reply.body);
  const auto success = answer.is_object() ? answer.value("success", nlohmann::json()) : answer;
  if (success == nlohmann::json(true)) return {};
  if (success == nlohmann::json(false)) {
    return invalid_argument("POST " + std::string(kPullWeights) +
                            " was answered with \"success\": false: " +
                            json_text(answer.value("message", nlohmann::json())));
  }
  return HttpClient::not_understood("POST", kPullWeights, reply, "{\"success\": true}");
}

}  // namespace

Status call_pull_weights(const std::string& url, const EngineOptions& options,
                         const PullWeights& request) {
  DW_ASSIGN_OR_RETURN(const std::string base, check_engine_url(url));
  const nlohmann::json body = {{"local_checkpoint_dir", request.local_checkpoint_dir},
                               {"source_dir", request.source_dir},
                               {"target_version", request.target_version}};
  const Result<HttpReply> reply = HttpClient(base, options).post(kPullWeights, json_text(body));
  return (reply.ok() ? judge_pull(*reply) : Status(reply.status())).at(base);
}

}  // namespace deltawire
