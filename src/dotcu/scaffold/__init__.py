"""A project, or another operator in one, from templates.

What is to be written is planned (`plan_project`, `plan_operator`): paths with texts. Writing is thin:
everything goes to a folder next to the goal first, and is renamed.
"""

from dotcu.scaffold.project import ScaffoldPlan, add, create, plan_operator, plan_project

__all__ = ["ScaffoldPlan", "add", "create", "plan_operator", "plan_project"]
