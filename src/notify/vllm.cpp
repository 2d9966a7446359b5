#include <nlohmann/json.hpp>

#include "base/json.h"
#include "notify/http.h"

namespace deltawire {
namespace {

using Json = nlohmann::json;

// Needs a server in development mode (VLLM_SERVER_DEV_MODE=1).
//   mode=keep            Requests stay in the queue and go on after /resume.
//   weights_path         Where to read: with copy-on-write it is not where the engine started from.
//   reset_prefix_cache   In mode "keep" a pause does not clear it. reset_running_requests makes
//                        kept requests recompute their keys and values with the new weights.
//   update_weight_version  A label that we set ourselves, so it proves nothing here; it is for
//                        those who ask GET /weight_info. Older servers do not have it.
// A reload that fails inside the server may have replaced some weights: there is no rollback.
class VllmEngine final : public Engine {
 public:
  VllmEngine(std::string url, const EngineOptions& options)
      : name_("vllm=" + url), http_(std::move(url), options) {}

  std::string name() const override { return name_; }
  Status pause() override {
    constexpr std::string_view kPause = "/pause?mode=keep&clear_cache=false";
    return judge(kPause, http_.post(kPause, "")).at(name_);
  }
  Status resume() override {
    return judge("/resume", http_.post_despite_stop("/resume", "")).at(name_);
  }

  ReloadResult reload(const ReloadRequest& request) override {
    const Json body = {{"method", "reload_weights"},
                       {"kwargs", {{"weights_path", request.checkpoint.string()}}}};
    const auto reply = http_.post("/collective_rpc", json_text(body));
    Status status = judge("/collective_rpc", reply).at(name_);
    if (status.ok() && !says_reloaded(reply->text)) {
      status = EngineClient::not_understood("POST", "/collective_rpc", *reply,
                                            "vLLM's {\"results\": [...]}")
                   .at(name_);
    }
    if (!status.ok()) {
      const bool refused = reply.ok() && !reply->ok();
      return {std::move(status), refused ? Weights::kOld : Weights::kUnknown, {}};
    }
    ReloadResult result{{}, Weights::kNew, {}};
    forget("/reset_prefix_cache?reset_running_requests=true", "prefix cache", &result);
    forget("/reset_encoder_cache", "encoder cache", &result);
    set_label(std::to_string(request.version), &result);
    return result;
  }

 private:
  // vLLM answers with a JSON object or an empty body. Any other answer comes from another server,
  // such as a proxy; then the files must neither change nor count as loaded.
  static Status judge(std::string_view path, const Result<HttpAnswer>& reply) {
    Status status = EngineClient::check(path, reply);
    if (reply.ok() && not_offered(*reply)) {
      return unsupported(status.message() + " (is the server in VLLM_SERVER_DEV_MODE=1?)");
    }
    if (!status.ok() || reply->text.empty() || parse_json(reply->text).is_object()) return status;
    return EngineClient::not_understood("POST", path, *reply, "JSON");
  }

  // What every worker returned; nothing when none of them returns anything.
  static bool says_reloaded(const std::string& body) {
    if (body.empty()) return true;
    const Json answer = parse_json(body);
    return answer.is_object() && answer.value("results", Json()).is_array();
  }

  // What was computed with the old weights: it must be gone even if everything is to end. A server
  // without such a cache has no such call.
  void forget(std::string_view path, std::string_view what, ReloadResult* result) const {
    const auto reply = http_.post_despite_stop(path, "");
    if (reply.ok() && not_offered(*reply)) return;
    Status status = EngineClient::check(path, reply);
    if (status.ok() && said_no(reply->text)) {
      status = conflict("POST " + std::string(path.substr(0, path.find('?'))) +
                        " was answered with \"success\": false");
    }
    if (status.ok()) return;
    result->warnings.push_back("the " + std::string(what) +
                               " of the old weights is still there: " + status.to_string());
  }

  static bool said_no(const std::string& body) {
    const Json answer = parse_json(body);
    return answer.is_object() && answer.value("success", Json(true)) == Json(false);
  }

  void set_label(const std::string& label, ReloadResult* result) const {
    const auto reply =
        http_.post("/update_weight_version", json_text(Json{{"new_version", label}}));
    if (reply.ok() && not_offered(*reply)) return;
    const Status status = EngineClient::check("/update_weight_version", reply);
    if (status.ok()) return;
    result->warnings.push_back("its weight_version was not set: " + status.to_string());
  }

  const std::string name_;
  const EngineClient http_;
};

}  // namespace

std::unique_ptr<Engine> make_vllm(std::string url, const EngineOptions& options) {
  return std::make_unique<VllmEngine>(std::move(url), options);
}

}  // namespace deltawire
