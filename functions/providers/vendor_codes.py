"""Vendors' error names, messages and statuses, and the code of ours that each means: data alone.

A name is whatever a vendor calls an error: OpenAI's `code` or `type`, Anthropic's
`details.error_code`, Google's `ErrorInfo.reason` or `status`, Azure's `innererror.code`. Names are
compared in lower case. One that is not listed says nothing, and the status decides.
"""

import re
from typing import NamedTuple

BY_NAME = {
    name: code
    for code, names in {
        "quota_exhausted": (
            "insufficient_quota credit_balance_exhausted organization_spend_limit_exceeded"
            " project_spend_limit_exceeded organization_usage_limit_exceeded"
            " billing_hard_limit_reached billing_not_active quota_exceeded payment_required"
            " billing_error enforced_spend_limit_reached contract_spend_limit_reached"
            " linked_organization_spend_limit_reached billing_disabled insufficient_credits"
            " budget_exceeded"
        ),
        "rate_limited": (
            "rate_limit_exceeded slow_down rate_limit_error throttling_error ramp_limit_exceeded"
        ),
        "overloaded": (
            "server_is_overloaded overloaded_error service_unavailable_error capacity_exceeded"
            " unavailable unavailable_error service_unavailable overloaded"
        ),
        "invalid_credential": (
            "invalid_api_key authentication_error authentication api_key_invalid unauthenticated"
        ),
        "permission_denied": "permission_error permission_denied organization_on_hold",
        "model_not_found": "model_not_found not_found_error not_found deploymentnotfound",
        "input_too_large": (
            "context_length_exceeded exceed_context_size_error string_above_max_length"
            " string_too_long request_too_large"
        ),
        "content_blocked": (
            "content_filter content_policy_violation responsibleaipolicyviolation bio_policy"
            " misalignment_policy_violation"
        ),
        "region_unsupported": "unsupported_country_region_territory data_residency_mismatch",
        "invalid_request": (
            "invalid_prompt unsupported_parameter unsupported_value"
            " invalid_image invalid_image_format invalid_image_mode invalid_image_url"
            " invalid_base64_image image_parse_error image_too_large image_too_small"
            " image_file_too_large image_file_not_found unsupported_image_media_type"
            " empty_image_file failed_to_download_image image_content_policy_violation"
        ),
        "timeout": "timeout_error deadline_exceeded cancelled",
        "provider_error": "server_error api_error conflict_error internal",
    }.items()
    for name in names.split()
}

BY_LIMIT_SOURCE = {  # OpenRouter's `metadata.limit_source`
    "openrouter_in_flight_budget": "rate_limited",  # ends once running requests have ended
    "openrouter_credits": "quota_exhausted",
    "openrouter_key_limit": "quota_exhausted",
    "openrouter_guardrail_budget": "quota_exhausted",
    "openrouter_workspace_budget": "quota_exhausted",
}

BY_STATUS = {
    401: "invalid_credential",
    402: "quota_exhausted",
    403: "permission_denied",
    404: "model_not_found",
    408: "timeout",
    409: "provider_error",
    413: "input_too_large",
    425: "provider_error",
    429: "rate_limited",
    498: "overloaded",  # Groq: capacity exceeded
    499: "timeout",  # Google: the request was cancelled on its way
    503: "overloaded",
    504: "timeout",
    524: "timeout",  # Cloudflare, before many servers: they had not answered in time
    529: "overloaded",  # Anthropic: too busy for all customers, no limit of ours
}

SPENT_MONTHLY = frozenset({"enforced_spend_limit_reached", "contract_spend_limit_reached"})


class MessageRule(NamedTuple):
    """What a message means under these statuses, where the vendor gives no name for it."""

    statuses: frozenset[int]
    pattern: re.Pattern[str]
    code: str
    name: str | None = None  # only beside this name


OWN_SPEND_LIMIT = re.compile(r"You have reached your specified (?:workspace )?API usage limits")
NO_QUOTA = re.compile(r"\blimit: 0(?![.,]?\d)")  # Google: the tier has no quota for this model
_TOO_LONG = re.compile(
    r"context (?:length|window)|maximum context|input token count|prompt is too long"
    r"|tokens\W+\+\W+max_(?:new_)?tokens",
    re.IGNORECASE,
)

MESSAGE_RULES = (
    MessageRule(frozenset({400}), OWN_SPEND_LIMIT, "quota_exhausted"),  # Anthropic
    MessageRule(frozenset({400}), re.compile("API key not valid"), "invalid_credential"),  # Google
    MessageRule(
        frozenset({400}),
        re.compile(r"\b(?:location|region|country)\b", re.IGNORECASE),
        "region_unsupported",
        name="failed_precondition",
    ),
    MessageRule(
        frozenset({400}),
        re.compile("billing", re.IGNORECASE),
        "quota_exhausted",
        name="failed_precondition",
    ),
    # Together says it with a 403, vLLM and others with a 400 without a name of its own.
    MessageRule(frozenset({400, 403, 422}), _TOO_LONG, "input_too_large"),
)
