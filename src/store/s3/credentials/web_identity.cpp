// A role for a token in a file, as Kubernetes gives it to a pod (IRSA).
#include "store/s3/credentials/sts.h"

namespace deltawire::s3 {

Result<Offer> ask_web_identity(const Asking& asking) {
  const std::string file = environment_variable("AWS_WEB_IDENTITY_TOKEN_FILE");
  const Role role{environment_variable("AWS_ROLE_ARN"),
                  environment_variable("AWS_ROLE_SESSION_NAME"), ""};
  if (file.empty()) return nothing("AWS_WEB_IDENTITY_TOKEN_FILE is not set");
  if (role.arn.empty()) {
    return invalid_argument("AWS_WEB_IDENTITY_TOKEN_FILE is set, and AWS_ROLE_ARN is not");
  }
  DW_ASSIGN_OR_RETURN(Keys keys, assume_role_with_web_identity(asking, role, file));
  return offer_of(std::move(keys));
}

}  // namespace deltawire::s3
