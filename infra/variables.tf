variable "project_id" {
  description = "The Google Cloud project, which must exist and have billing."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9-]{4,28}[a-z0-9]$", var.project_id))
    error_message = "project_id must be a project's ID: 6 to 30 lower-case letters, digits and hyphens."
  }
}

variable "region" {
  description = "The one region that everything is in."
  type        = string
  default     = "europe-west1"

  validation {
    condition     = can(regex("^[a-z]+-[a-z]+[0-9]+$", var.region))
    error_message = "region must be a region such as europe-west1."
  }
}

variable "image" {
  description = "The one image of all services, by digest: what was checked is what runs."
  type        = string

  validation {
    condition     = can(regex("^[a-z0-9.-]+/[a-z0-9./_-]+@sha256:[0-9a-f]{64}$", var.image))
    error_message = "image must end in @sha256: and 64 hexadecimal digits; a tag can come to mean another image."
  }
}

variable "serving_revisions" {
  description = "Service target to the revision that gets all traffic, for a canary or a roll-back. Targets left out serve their latest."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for target in keys(var.serving_revisions) : contains(["api", "evaluate", "notify", "reconcile", "dead_letter"], target)])
    error_message = "serving_revisions has a key that is none of the five targets."
  }
}

variable "owner" {
  description = "The team that answers the alarms; a label of every alarm."
  type        = string

  validation {
    condition     = can(regex("^[a-z][a-z0-9_-]{0,62}$", var.owner))
    error_message = "owner must be a label: lower-case letters, digits, hyphens and underscores."
  }
}

variable "alarm_emails" {
  description = "Who is told of alarms."
  type        = set(string)

  validation {
    condition     = length(var.alarm_emails) > 0 && alltrue([for address in var.alarm_emails : can(regex("^[^@ ]+@[^@ ]+[.][^@ ]+$", address))])
    error_message = "alarm_emails needs at least one e-mail address."
  }
}

variable "runbook_url" {
  description = "Where RUNBOOK.md can be read; alarms link to its sections."
  type        = string

  validation {
    condition     = startswith(var.runbook_url, "https://")
    error_message = "runbook_url must be an https address."
  }
}

variable "operator_tenant" {
  description = "The tenant whose operators also see what belongs to no tenant, such as unreadable messages; null for none."
  type        = string
  default     = null
}

variable "api_invokers" {
  description = "Who may reach the API through Cloud Run's own guard. null: everybody may, and Empanel's API keys alone decide."
  type        = set(string)
  default     = null

  validation {
    condition     = var.api_invokers == null ? true : alltrue([for member in var.api_invokers : can(regex("^(user|group|serviceAccount|domain):", member))])
    error_message = "api_invokers are IAM members such as group:team@example.com."
  }
}

# The time chain: provider < handler < acknowledgement. functions/config.py checks it again at start.
variable "provider_deadline_seconds" {
  description = "Longest provider call."
  type        = number
  default     = 120

  validation {
    condition     = var.provider_deadline_seconds >= 1 && var.provider_deadline_seconds <= 540
    error_message = "provider_deadline_seconds must be 1 to 540."
  }

  validation {
    condition     = var.provider_deadline_seconds + 10 <= var.handler_deadline_seconds
    error_message = "provider_deadline_seconds must be at least 10 below handler_deadline_seconds: a handler looks, stores and settles beside the call."
  }
}

variable "handler_deadline_seconds" {
  description = "Longest delivery of one message."
  type        = number
  default     = 570

  validation {
    condition     = var.handler_deadline_seconds + 5 < var.ack_deadline_seconds
    error_message = "handler_deadline_seconds must be more than 5 below ack_deadline_seconds, or a message comes again while it is worked on."
  }
}

variable "ack_deadline_seconds" {
  description = "How long Pub/Sub waits for a push's answer; also the request timeout of the pushed services."
  type        = number
  default     = 600

  validation {
    condition     = var.ack_deadline_seconds >= 10 && var.ack_deadline_seconds <= 600
    error_message = "ack_deadline_seconds must be 10 to 600, which is all that Pub/Sub takes."
  }
}

variable "lease_seconds" {
  description = "Length of a lease; renewed at a third of it."
  type        = number
  default     = 30

  validation {
    condition     = var.lease_seconds >= 5 && var.lease_seconds <= 600
    error_message = "lease_seconds must be 5 to 600."
  }
}

# The stated throughput, from which instances follow (locals.tf).
variable "seats_per_second" {
  description = "Most evaluations begun in a second, sustained."
  type        = number

  validation {
    condition     = var.seats_per_second > 0 && var.seats_per_second <= 1000
    error_message = "seats_per_second must be above 0 and at most 1000."
  }
}

variable "seat_seconds" {
  description = "Mean time of one evaluation, nearly all of it the provider's."
  type        = number
  default     = 20

  validation {
    condition     = var.seat_seconds > 0 && var.seat_seconds <= 540
    error_message = "seat_seconds must be above 0 and at most 540."
  }
}

variable "concurrency" {
  description = "Requests that one instance works on at once."
  type        = number
  default     = 80

  validation {
    condition     = var.concurrency >= 8 && var.concurrency <= 1000
    error_message = "concurrency must be 8 to 1000: at 1 the platform costs many times as much, since nearly all of a delivery is waiting."
  }
}

variable "provider_concurrency" {
  description = "Calls in flight per instance and provider."
  type        = number
  default     = 64

  validation {
    condition     = var.provider_concurrency >= 1 && var.provider_concurrency <= var.concurrency
    error_message = "provider_concurrency must be 1 to concurrency."
  }
}

variable "waiting_callers" {
  description = "Most callers who stay at once: Prefer: wait, event streams, open jobs' pages of the console. More are answered at once, or told 429."
  type        = number
  default     = 100

  validation {
    condition     = var.waiting_callers >= 0 && var.waiting_callers <= 10000
    error_message = "waiting_callers must be 0 to 10000."
  }
}

variable "min_instances" {
  description = "API instances kept warm."
  type        = number
  default     = 0

  validation {
    condition     = var.min_instances >= 0 && var.min_instances <= 20
    error_message = "min_instances must be 0 to 20."
  }
}

variable "retention_days" {
  description = "How long records and objects are kept."
  type        = number
  default     = 400

  validation {
    condition     = var.retention_days >= 2 && var.retention_days <= 3650
    error_message = "retention_days must be 2 to 3650."
  }
}

variable "protect" {
  description = "Refuse to delete services, the database and the bucket. false only for a project that is thrown away."
  type        = bool
  default     = true
}

# Caps per tenant and day, 0 for none.
variable "tenant_day" {
  description = "What one tenant may spend in a day (UTC); 0 for no cap."
  type        = object({ requests = number, cost_usd = number })
  default     = { requests = 0, cost_usd = 0 }

  validation {
    condition     = var.tenant_day.requests >= 0 && var.tenant_day.cost_usd >= 0
    error_message = "tenant_day holds numbers from 0."
  }
}

# Limits of single callers, 0 for none.
variable "api_limits" {
  description = "What one caller may take at once: requests of one key in a minute, from each instance of the API, and open seats of one tenant; 0 for no limit."
  type        = object({ key_requests_per_minute = number, tenant_open_seats = number })
  default     = { key_requests_per_minute = 0, tenant_open_seats = 0 }

  validation {
    condition     = var.api_limits.key_requests_per_minute >= 0 && var.api_limits.tenant_open_seats >= 0
    error_message = "api_limits holds numbers from 0."
  }
}

variable "provider_keys" {
  description = "Environment variable of a provider's key to the version of its secret, e.g. { OPENAI_API_KEY = \"1\" }. The secrets are made here, the versions by hand."
  type        = map(string)

  validation {
    condition     = alltrue([for name in keys(var.provider_keys) : can(regex("^[A-Z][A-Z0-9_]*_KEY$", name))])
    error_message = "provider_keys has names of variables that end in _KEY."
  }

  validation {
    condition     = alltrue([for version in values(var.provider_keys) : can(regex("^[1-9][0-9]*$", version))])
    error_message = "Secrets are pinned: a version is a number, never latest."
  }
}

variable "provider_settings" {
  description = "Further settings of providers that are no secrets, e.g. { GOOGLE_CLOUD_LOCATION = \"europe-west1\" }."
  type        = map(string)
  default     = {}

  validation {
    condition     = alltrue([for name in keys(var.provider_settings) : can(regex("^(GOOGLE_CLOUD_LOCATION|[A-Z0-9_]+_BASE_URL)$", name))])
    error_message = "provider_settings takes GOOGLE_CLOUD_LOCATION and variables that end in _BASE_URL."
  }
}

variable "providers_file_version" {
  description = "Version of the secret empanel-providers, the TOML file of EMPANEL_PROVIDERS; null for none."
  type        = string
  default     = null

  validation {
    condition     = var.providers_file_version == null ? true : can(regex("^[1-9][0-9]*$", var.providers_file_version))
    error_message = "Secrets are pinned: a version is a number, never latest."
  }
}

variable "tenants_file_version" {
  description = "Version of the secret empanel-tenants, the TOML file of EMPANEL_TENANTS: Google accounts that call the API, and caps of single tenants; null for none."
  type        = string
  default     = null

  validation {
    condition     = var.tenants_file_version == null ? true : can(regex("^[1-9][0-9]*$", var.tenants_file_version))
    error_message = "Secrets are pinned: a version is a number, never latest."
  }
}

variable "webhook_secrets_version" {
  description = "Version of the secret empanel-webhook-secrets, the list of signing secrets of notifications."
  type        = string

  validation {
    condition     = can(regex("^[1-9][0-9]*$", var.webhook_secrets_version))
    error_message = "Secrets are pinned: a version is a number, never latest."
  }
}

variable "otlp" {
  description = "Where traces and metrics go, as OTLP over HTTP, and which requests are traced: all (always_on) or those that Cloud Run samples (parentbased_always_on). null to send nothing."
  type        = object({ endpoint = string, sampler = optional(string, "parentbased_always_on") })
  default     = null

  validation {
    condition     = var.otlp == null ? true : can(regex("^https?://[^/ ?#@]+(/[^ ?#]*)?$", var.otlp.endpoint))
    error_message = "otlp.endpoint must be an http or https address without user, query and fragment."
  }

  validation {
    condition     = var.otlp == null ? true : contains(["always_on", "parentbased_always_on"], var.otlp.sampler)
    error_message = "otlp.sampler must be always_on or parentbased_always_on."
  }
}

variable "attempts_per_hour_alarm" {
  description = "Provider requests in an hour above which somebody is told, whatever the caps."
  type        = number

  validation {
    condition     = var.attempts_per_hour_alarm > 0
    error_message = "attempts_per_hour_alarm must be above 0."
  }
}

variable "monthly_budget" {
  description = "Platform budget: billing account, currency and whole units; null for none. The models' own bill is not in it, except Vertex AI."
  type        = object({ billing_account = string, currency = string, units = number })
  default     = null

  validation {
    condition     = var.monthly_budget == null ? true : var.monthly_budget.units > 0 && can(regex("^[0-9A-F]{6}(-[0-9A-F]{6}){2}$", var.monthly_budget.billing_account))
    error_message = "monthly_budget needs a billing account such as 012345-6789AB-CDEF01 and units above 0."
  }
}
