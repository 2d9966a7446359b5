#include <algorithm>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/json.h"
#include "notify/http.h"

namespace deltawire {
namespace {

using Json = nlohmann::json;

// Ok when it said {"success": true}. Unsupported: it said nothing that SGLang says.
Status judge_success(std::string_view path, const Result<HttpAnswer>& reply) {
  DW_RETURN_IF_ERROR(EngineClient::check(path, reply));
  const Json answer = parse_json(reply->text);
  const Json success = answer.is_object() ? answer.value("success", Json()) : Json();
  if (success == Json(true)) return {};
  if (success == Json(false)) {
    return invalid_argument(
        "POST " + std::string(path) +
        " was answered with \"success\": false: " + json_text(answer.value("message", Json())));
  }
  return EngineClient::not_understood("POST", path, *reply, "SGLang's {\"success\": true}");
}

// Three choices that are not the server's defaults, and why (seen on 0.5.23):
//   mode "retract"       Running requests go back to the queue and are prefilled again with the new
//                        weights: nobody's request is lost ("abort" would), and no sequence is
//                        continued on keys and values of other weights ("in_place" would).
//   "flush_cache": false A flush that fails inside the update makes it answer 400 although the
//                        weights have changed; older servers die of it. So the update is about
//                        weights alone, and /flush_cache comes after it, on its own.
//   weight_version       The label that /model_info shows. It settles what an answer leaves open.
class SglangEngine final : public Engine {
 public:
  SglangEngine(std::string url, const EngineOptions& options)
      : name_("sglang=" + url), http_(url, options), probe_(url, for_probes(options)) {}

  std::string name() const override { return name_; }
  Status pause() override {
    return judge_command("/pause_generation",
                         http_.post("/pause_generation", json_text(Json{{"mode", "retract"}})));
  }
  Status resume() override {
    return judge_command("/continue_generation",
                         http_.post_despite_stop("/continue_generation", "{}"));
  }

  ReloadResult reload(const ReloadRequest& request) override {
    const std::string label = std::to_string(request.version);
    const std::optional<std::string> before = weight_version();
    const Json body = {{"model_path", request.checkpoint.string()},
                       {"weight_version", label},
                       {"flush_cache", false},
                       {"abort_all_requests", false}};
    const auto reply = http_.post(kUpdate, json_text(body));
    const std::optional<std::string> after = weight_version();
    ReloadResult result = judge(reply, label, before, after);
    if (result.weights == Weights::kNew) flush(&result);
    return result;
  }

 private:
  static constexpr std::string_view kUpdate = "/update_weights_from_disk";

  // Reading a label is no reason to keep an engine paused: one short attempt.
  static EngineOptions for_probes(EngineOptions options) {
    options.limits.retries = 0;
    options.limits.timeout_seconds = std::min(options.limits.timeout_seconds, 10.0);
    return options;
  }

  // Both answer {"message": ..., "status": "ok"}. A 200 of something else that listens there must
  // not let files change under an engine that goes on.
  Status judge_command(std::string_view path, const Result<HttpAnswer>& reply) const {
    DW_RETURN_IF_ERROR(EngineClient::check(path, reply).at(name_));
    if (parse_json(reply->text).is_object()) return {};
    return EngineClient::not_understood("POST", path, *reply, "JSON").at(name_);
  }

  // The label of the weights it holds; nothing when it does not say.
  std::optional<std::string> weight_version() const {
    const auto reply = probe_.get("/model_info");
    if (!reply.ok() || !reply->ok()) return std::nullopt;
    const auto answer = parse_json(reply->text);
    const auto label = answer.find("weight_version");
    if (label == answer.end() || !label->is_string()) return std::nullopt;
    return label->get<std::string>();  // an empty one is a label, too
  }

  // What the answer and the labels around it amount to. A label that became the new one means new
  // weights, whatever the answer was. One that was there before proves nothing: another run may
  // have had a version of the same number.
  ReloadResult judge(const Result<HttpAnswer>& reply, const std::string& label,
                     const std::optional<std::string>& before,
                     const std::optional<std::string>& after) const {
    const bool says_new = after == label;
    Status failed = judge_success(kUpdate, reply).at(name_);
    if (failed.ok()) {
      if (says_new || !after) return {{}, Weights::kNew, {}};
      return {corruption(name_ + ": POST " + std::string(kUpdate) + " succeeded, but /model_info " +
                         "has weight_version \"" + *after + "\", not \"" + label + "\""),
              Weights::kUnknown,
              {}};
    }
    if (says_new && before && before != label) {
      const bool said_yes = reply.ok() && reply->ok();
      if (said_yes) return {{}, Weights::kNew, {}};
      return {{}, Weights::kNew, {"it has the new weights despite " + failed.to_string()}};
    }
    const bool not_understood = reply.ok() && reply->ok() && failed.code() == Code::kUnsupported;
    const bool refused = reply.ok() && !not_understood && !says_new;
    return {std::move(failed), refused ? Weights::kOld : Weights::kUnknown, {}};
  }

  // Keys and values computed with the old weights must not be found by new requests.
  void flush(ReloadResult* result) const {
    const auto reply = http_.post_despite_stop("/flush_cache", "{}");  // answered in plain text
    Status status = EngineClient::check("/flush_cache", reply).at(name_);
    if (status.ok()) return;
    result->warnings.push_back("the prefix cache of the old weights is still there: " +
                               status.to_string());
  }

  const std::string name_;
  const EngineClient http_, probe_;
};

}  // namespace

std::unique_ptr<Engine> make_sglang(std::string url, const EngineOptions& options) {
  return std::make_unique<SglangEngine>(std::move(url), options);
}

}  // namespace deltawire
