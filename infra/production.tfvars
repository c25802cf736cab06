# Production: 100 seats a second, several providers, warm API, caps, budget, everything protected.
project_id                = "empanel-production"
owner                     = "evaluation-platform"
alarm_emails              = ["evaluation-platform@example.com", "on-call@example.com"]
runbook_url               = "https://git.example.com/empanel/blob/main/infra/RUNBOOK.md"
seats_per_second          = 100
seat_seconds              = 20
min_instances             = 2
provider_deadline_seconds = 180
retention_days            = 400
provider_keys             = { ANTHROPIC_API_KEY = "1", GEMINI_API_KEY = "1", OPENAI_API_KEY = "1" }
provider_settings         = { GOOGLE_CLOUD_LOCATION = "europe-west1" }
webhook_secrets_version   = "1"
attempts_per_hour_alarm   = 400000
tenant_day                = { requests = 2000000, cost_usd = 5000 }
api_limits                = { key_requests_per_minute = 3000, tenant_open_seats = 200000 }
monthly_budget            = { billing_account = "012345-6789AB-CDEF01", currency = "EUR", units = 2500 }
