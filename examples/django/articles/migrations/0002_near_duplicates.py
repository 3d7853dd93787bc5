import simsql.django
from django.db import migrations


class Migration(migrations.Migration):

    dependencies = [
        ('articles', '0001_authors_and_articles'),
    ]

    operations = [
        simsql.django.InstallSimsql(),
        migrations.AddField(
            model_name='article',
            name='fingerprint',
            field=simsql.django.SimhashField(blank=True, editable=False, null=True, recipe='words12-log-1', source='body'),
        ),
        migrations.AddIndex(
            model_name='article',
            index=simsql.django.SimhashIndex('fingerprint', distance=7, name='articles_ar_fingerp_c52e97_idx'),
        ),
    ]
