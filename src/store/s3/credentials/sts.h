// AWS's Security Token Service: a role's short-lived keys for a token or for other keys.
#pragma once

#include "store/s3/credentials/provider.h"

namespace deltawire::s3 {

struct Role {
  std::string arn;
  std::string session_name;  // empty: one of ours
  std::string external_id;   // of AssumeRole; empty: none
};

// The token is read anew each time: it is rotated.
Result<Keys> assume_role_with_web_identity(const Asking& asking, const Role& role,
                                           const std::filesystem::path& token_file);
Result<Keys> assume_role(const Asking& asking, const Role& role, const Credentials& credentials);

}  // namespace deltawire::s3
